// SPDX-License-Identifier: Apache-2.0
#include "simulated/device/streams.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "simulated/device/counters.hpp"
#include "simulated/device/pinned.hpp"

namespace finetune::simulated {
namespace {

thread_local Stream stream_of_thread = default_stream;

/// Waits to leave out, by kind: which one, or 0 for all.
std::map<std::string, int, std::less<>> read_drops() {
  std::map<std::string, int, std::less<>> drops;
  const char* setting = std::getenv("FINETUNE_SIMULATED_DROP");
  std::string_view rest = setting == nullptr ? "" : setting;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t mark = item.find('#');
    int which = 0;
    if (mark != std::string_view::npos)
      std::from_chars(item.data() + mark + 1, item.data() + item.size(), which);
    drops.emplace(item.substr(0, mark), which);
  }
  return drops;
}

}  // namespace

Stream current_stream() {
  return stream_of_thread;
}

Stream exchange_stream(Stream stream) {
  return std::exchange(stream_of_thread, stream);
}

Stream new_stream() {
  static std::atomic<Stream> next{communication_stream + 1};
  return next++;
}

void host_waits(const std::string& name, const Clock& event) {
  Counters::here().sync(name);
  Order::here().host_waits(event);
  PinnedMemory::here().give_back();
}

void host_waits_for(const std::string& name, Stream stream) {
  host_waits(name, Order::here().event(stream));
}

bool is_dropped(std::string_view kind) {
  static const auto drops = read_drops();
  if (drops.empty()) return false;
  static std::mutex mutex;
  static std::map<std::string, int, std::less<>> met;
  const std::lock_guard lock(mutex);
  const int number = ++met.try_emplace(std::string(kind), 0).first->second;
  const auto drop = drops.find(kind);
  return drop != drops.end() && (drop->second == 0 || drop->second == number);
}

}  // namespace finetune::simulated
