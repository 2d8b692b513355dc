// SPDX-License-Identifier: Apache-2.0
#include "simulated/device/order.hpp"

#include <c10/util/Backtrace.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "simulated/device/streams.hpp"

namespace finetune::simulated {
namespace {

constexpr int exit_code_of_bugs = 70;

thread_local const Operation* innermost = nullptr;

bool is_set_to(const char* setting, const char* value) {
  const char* text = std::getenv(setting);
  return text != nullptr && std::strcmp(text, value) == 0;
}

const char* as_bytes(const void* address) {
  return static_cast<const char*>(address);
}

}  // namespace

std::int64_t Clock::of(Stream stream) const {
  const auto i = static_cast<std::size_t>(stream);
  return i < last_.size() ? last_[i] : 0;
}

void Clock::set(Stream stream, std::int64_t number) {
  const auto i = static_cast<std::size_t>(stream);
  if (i >= last_.size()) last_.resize(i + 1, 0);
  last_[i] = number;
}

void Clock::merge(const Clock& other) {
  if (last_.size() < other.last_.size()) last_.resize(other.last_.size(), 0);
  for (std::size_t i = 0; i < other.last_.size(); ++i)
    last_[i] = std::max(last_[i], other.last_[i]);
}

bool Clock::covers(const Clock& other) const {
  for (std::size_t i = 0; i < other.last_.size(); ++i)
    if (of(static_cast<Stream>(i)) < other.last_[i]) return false;
  return true;
}

Operation::Operation(std::string name) : Operation(std::move(name), current_stream()) {}

Operation::Operation(std::string name, Stream stream)
    : name_(std::make_shared<const std::string>(std::move(name))),
      stream_(stream),
      number_(Order::here().launch(stream)),
      outer_(std::exchange(innermost, this)) {}

Operation::~Operation() {
  innermost = outer_;
}

void Operation::touches(const void* begin, std::size_t bytes, Touch touch,
                        const std::string& what) const {
  Order::here().touch(*this, name_, number_, begin, bytes, touch, what);
}

const Operation* Operation::current() {
  return innermost;
}

Order& Order::here() {
  static Order* const order = new Order();
  return *order;
}

Clock& Order::clock(Stream stream) {
  const auto i = static_cast<std::size_t>(stream);
  if (i >= clocks_.size()) clocks_.resize(i + 1);
  return clocks_[i];
}

std::int64_t Order::launch(Stream stream) {
  const std::lock_guard lock(mutex_);
  Clock& own = clock(stream);
  // The host starts nothing before it has waited.
  own.merge(host_);
  own.set(stream, own.of(stream) + 1);
  return own.of(stream);
}

Clock Order::event(Stream stream) const {
  const std::lock_guard lock(mutex_);
  const auto i = static_cast<std::size_t>(stream);
  return i < clocks_.size() ? clocks_[i] : Clock();
}

void Order::stream_waits(Stream stream, const Clock& event) {
  const std::lock_guard lock(mutex_);
  clock(stream).merge(event);
}

void Order::host_waits(const Clock& event) {
  const std::lock_guard lock(mutex_);
  host_.merge(event);
}

bool Order::host_knows(const Clock& event) const {
  const std::lock_guard lock(mutex_);
  return host_.covers(event);
}

void Order::split(const char* at) {
  auto piece = pieces_.upper_bound(at);
  if (piece == pieces_.begin()) return;
  --piece;
  if (piece->first == at || piece->second.end <= at) return;
  Piece rest = piece->second;
  piece->second.end = at;
  pieces_.emplace(at, std::move(rest));
}

template <typename F>
void Order::for_each(const char* begin, const char* end, const F& f) {
  split(begin);
  split(end);
  auto piece = pieces_.lower_bound(begin);
  for (const char* at = begin; at < end; ++piece) {
    if (piece == pieces_.end() || piece->first > at) {
      const char* until = piece == pieces_.end() ? end : std::min(end, piece->first);
      piece = pieces_.emplace(at, Piece{.end = until, .written = {}, .read = {}}).first;
    }
    f(piece->second);
    at = piece->second.end;
  }
}

void Order::forget(const char* begin, const char* end) {
  split(begin);
  split(end);
  pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
}

bool Order::is_before(const Use& use, Stream stream) const {
  if (use.operation == nullptr || use.stream == stream) return true;
  return clocks_[static_cast<std::size_t>(stream)].of(use.stream) >= use.number;
}

void Order::check(const Use& now, Touch touch, const Piece& piece, const std::string& what) const {
  const auto tell = [&](const Use& earlier, const char* is_doing) {
    found(
        fmt::format("{} (operation {} of {}) {} {}, which {} (operation {} of {}) may still be {}",
                    *now.operation, now.number, name_of(now.stream),
                    touch == Touch::reads ? "reads" : "writes", what, *earlier.operation,
                    earlier.number, name_of(earlier.stream), is_doing),
        "neither an event nor the host orders the second behind the first",
        fmt::format("Let {} wait first", name_of(now.stream)));
  };
  if (!is_before(piece.written, now.stream)) tell(piece.written, "writing");
  if (touch == Touch::reads) return;
  for (const Use& read : piece.read)
    if (!is_before(read, now.stream)) tell(read, "reading");
}

void Order::touch(const Operation& operation, const std::shared_ptr<const std::string>& name,
                  std::int64_t number, const void* begin, std::size_t bytes, Touch touch,
                  const std::string& what) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const Use now{name, operation.stream(), number};
  const char* first = as_bytes(begin);
  for_each(first, first + bytes, [&](Piece& piece) {
    check(now, touch, piece, what);
    if (touch == Touch::writes) return;
    const auto same = std::ranges::find(piece.read, now.stream, &Use::stream);
    if (same != piece.read.end())
      *same = now;
    else
      piece.read.push_back(now);
  });
  if (touch == Touch::reads) return;
  forget(first, first + bytes);
  pieces_.emplace(first, Piece{.end = first + bytes, .written = now, .read = {}});
}

void Order::allocated(const void* begin, std::size_t bytes, Stream stream) {
  // What the block was before may still be used, on this stream.
  static const auto name = std::make_shared<const std::string>("an earlier owner of the block");
  const std::int64_t number = launch(stream);
  const std::lock_guard lock(mutex_);
  const char* first = as_bytes(begin);
  forget(first, first + bytes);
  pieces_.emplace(first,
                  Piece{.end = first + bytes, .written = {name, stream, number}, .read = {}});
  blocks_[begin] = {bytes, stream};
}

void Order::freed(const void* begin) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(begin);
  if (block == blocks_.end()) return;
  const auto [bytes, stream] = block->second;
  clock(stream).merge(host_);
  const auto check_end = [&](const Use& use, const char* is_doing) {
    if (is_before(use, stream)) return;
    found(fmt::format("{} bytes are freed, which {} (operation {} of {}) may still be {}", bytes,
                      *use.operation, use.number, name_of(use.stream), is_doing),
          fmt::format("their next owner, on {}, does not wait for it", name_of(stream)),
          "Keep them until the wait, or wait first");
  };
  const char* first = as_bytes(begin);
  for_each(first, first + bytes, [&](const Piece& piece) {
    check_end(piece.written, "writing");
    for (const Use& read : piece.read)
      check_end(read, "reading");
  });
  forget(first, first + bytes);
  blocks_.erase(block);
}

std::string name_of(Stream stream) {
  if (stream == default_stream) return "the computing stream";
  if (stream == communication_stream) return "the communication stream";
  return fmt::format("stream {}", stream);
}

void found(const std::string& problem, const std::string& why, const std::string& remedy) {
  if (is_set_to("FINETUNE_SIMULATED_RACES", "0")) return;
  const std::string trace =
      is_set_to("FINETUNE_SIMULATED_TRACE", "races") ? c10::get_backtrace() : std::string();
  fmt::print(stderr, "simulated device: {} ({}). {}.\n{}", problem, why, remedy, trace);
  std::fflush(nullptr);
  std::_Exit(exit_code_of_bugs);
}

}  // namespace finetune::simulated
