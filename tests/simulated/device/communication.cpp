// SPDX-License-Identifier: Apache-2.0
#include "simulated/device/communication.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "simulated/device/arena.hpp"
#include "simulated/device/streams.hpp"

namespace finetune::simulated {
namespace {

std::byte* memory_of(const CommunicationStream::Part& part) {
  if (part.bytes == 0) return nullptr;
  return static_cast<std::byte*>(Arena::here().for_kernels(part.address));
}

bool overlap(const CommunicationStream::Part& a, const CommunicationStream::Part& b) {
  const auto* first = static_cast<const char*>(a.address);
  const auto* second = static_cast<const char*>(b.address);
  return first < second + b.bytes && second < first + a.bytes;
}

std::string in_words(const CommunicationStream::Part& part) {
  return fmt::format("{} bytes", part.bytes);
}

}  // namespace

CommunicationStream& CommunicationStream::here() {
  static auto* const stream = new CommunicationStream();
  return *stream;
}

comm::Ticket CommunicationStream::start(const std::string& collective, Part read, Part written,
                                        const Move& move) {
  if (!is_dropped(collective + ".follow"))
    Order::here().stream_waits(communication_stream, Order::here().event(current_stream()));
  const Operation operation(collective, communication_stream);
  operation.touches(read.address, read.bytes, Touch::reads, in_words(read));
  operation.touches(written.address, written.bytes, Touch::writes, in_words(written));

  OnItsWay way{.read = read, .written = written, .was_read = {}, .result = {}};
  way.result.resize(written.bytes);
  move(memory_of(read), way.result.data());
  if (!overlap(read, written)) way.was_read.assign(memory_of(read), memory_of(read) + read.bytes);
  if (written.bytes > 0) std::memset(memory_of(written), 0xff, written.bytes);
  const std::lock_guard lock(mutex_);
  started_.push_back({collective, Order::here().event(communication_stream)});
  way.ticket = static_cast<comm::Ticket>(started_.size());
  on_their_way_.push_back(std::move(way));
  return on_their_way_.back().ticket;
}

void CommunicationStream::arrive(const OnItsWay& way) const {
  if (!way.was_read.empty() &&
      std::memcmp(memory_of(way.read), way.was_read.data(), way.read.bytes) != 0) {
    found(fmt::format("what {} reads was changed before it was done",
                      started_[static_cast<std::size_t>(way.ticket - 1)].collective),
          "it may have read either", "Wait for it before writing");
  }
  if (way.written.bytes > 0)
    std::memcpy(memory_of(way.written), way.result.data(), way.result.size());
}

void CommunicationStream::arrive_until(comm::Ticket ticket) {
  while (!on_their_way_.empty() && on_their_way_.front().ticket <= ticket) {
    arrive(on_their_way_.front());
    on_their_way_.pop_front();
  }
}

void CommunicationStream::make_compute_wait(comm::Ticket ticket) {
  const std::lock_guard lock(mutex_);
  const Started& started = started_.at(static_cast<std::size_t>(ticket - 1));
  if (is_dropped(started.collective + ".wait")) return;
  Order::here().stream_waits(current_stream(), started.done);
  arrive_until(ticket);
}

void CommunicationStream::synchronize() {
  {
    const std::lock_guard lock(mutex_);
    arrive_until(static_cast<comm::Ticket>(started_.size()));
  }
  host_waits_for("communication", communication_stream);
}

}  // namespace finetune::simulated
