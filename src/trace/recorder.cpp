// SPDX-License-Identifier: Apache-2.0
#include "trace/recorder.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <utility>

namespace finetune::trace {
namespace detail {

std::atomic<bool> is_on = false;

}  // namespace detail

namespace {

constexpr std::size_t deepest_stack = 32;
constexpr std::size_t longest_function = 120;  ///< of its name; the rest is arguments of templates

struct Kept {
  std::mutex mutex;
  Options options;
  Recording recording;
  core::Json memory;  ///< as it was sampled last
};

Kept& kept() {
  static Kept kept;
  return kept;
}

template <typename Clock>
std::int64_t ns_of() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

std::int64_t now_ns() {
  return ns_of<std::chrono::steady_clock>();
}

std::string function_at(void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  // For addr2line.
  if (info.dli_sname == nullptr)
    return fmt::format(
        "{}+{:#x}", std::filesystem::path(info.dli_fname).filename().string(),
        static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase));
  int status = 0;
  char* demangled = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
  std::string name = status == 0 && demangled != nullptr ? demangled : info.dli_sname;
  std::free(demangled);
  return name.substr(0, longest_function);
}

void sample_memory(Kept& all, std::int64_t at_ns) {
  if (!all.options.memory) return;
  core::Json now = all.options.memory();
  if (now == all.memory) return;
  all.memory = now;
  all.recording.events.push_back({.row = std::string(main_row),
                                  .name = "memory",
                                  .begin_ns = at_ns,
                                  .end_ns = at_ns,
                                  .args = std::move(now),
                                  .is_counter = true});
}

}  // namespace

void start(Options options) {
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  all.options = std::move(options);
  all.memory = {};
  all.recording = {
      .events = {}, .since_ns = now_ns(), .since_1970_ns = ns_of<std::chrono::system_clock>()};
  detail::is_on.store(true, std::memory_order_relaxed);
}

Recording stop() {
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  detail::is_on.store(false, std::memory_order_relaxed);
  Recording recording = std::exchange(all.recording, {});
  std::stable_sort(
      recording.events.begin(), recording.events.end(), [](const Event& a, const Event& b) {
        return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
      });
  return recording;
}

void record(Event event) {
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  if (!is_on() || event.begin_ns < all.recording.since_ns) return;
  if (all.recording.events.size() >= most_events) {
    ++all.recording.num_dropped;
    return;
  }
  if (event.row == main_row) sample_memory(all, event.end_ns);
  all.recording.events.push_back(std::move(event));
}

core::Json stack() {
  {
    Kept& all = kept();
    const std::lock_guard lock(all.mutex);
    if (!is_on() || !all.options.stacks) return {};
  }
  std::array<void*, deepest_stack> frames{};
  const int depth = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  core::Json functions = core::Json::array();
  for (int i = 0; i < depth; ++i) {
    std::string name = function_at(frames[static_cast<std::size_t>(i)]);
    // What asks is no news.
    if (!name.empty() && !name.starts_with("finetune::trace::"))
      functions.push_back(std::move(name));
  }
  return functions;
}

void Span::begin(std::string_view row, std::string_view kind, std::string_view subject) {
  event_.row = row;
  event_.name = subject.empty() ? std::string(kind) : fmt::format("{} of {}", kind, subject);
  if (core::Json from = stack(); !from.is_null()) event_.args["stack"] = std::move(from);
  event_.begin_ns = now_ns();
  if (row != main_row) return;
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  sample_memory(all, event_.begin_ns);
}

void Span::close() noexcept {
  try {
    event_.end_ns = now_ns();
    record(std::exchange(event_, {}));
  } catch (...) {
    // Without memory for it there is one span less.
  }
}

}  // namespace finetune::trace
