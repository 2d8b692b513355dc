// SPDX-License-Identifier: Apache-2.0
#include "core/fault.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace finetune::core::fault {
namespace {

constexpr int any = -1;

struct Fault {
  std::string point;
  int rank = any;
  int hit = any;  ///< counts from 1
  std::string action;
  int milliseconds = 0;  ///< of slow
  std::atomic<int> hits = 0;
};

std::atomic<int> own_rank = 0;

[[noreturn]] void fail_to_read(std::string_view text) {
  fail(ErrorKind::command_line,
       {"FINETUNE_FAULT", fmt::format("\"{}\" is no fault", text),
        "tests write <point>:<rank>:<hit>:<kill|stop|usr1|exc|eio|enospc|slow=MS|flip>",
        "Unset the variable."});
}

/// The part of `text` before the next `end`, which is removed with it.
std::string_view take(std::string_view& text, char end) {
  const auto n = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, n);
  text.remove_prefix(std::min(n + 1, text.size()));
  return part;
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

void add(std::deque<Fault>& faults, std::string_view text) {
  const std::string_view whole = text;
  Fault& fault = faults.emplace_back();
  fault.point = take(text, ':');
  const std::string_view rank = take(text, ':');
  const std::string_view hit = take(text, ':');
  fault.action = take(text, '=');
  const auto read = [&](std::string_view word) {
    const auto value = word == "*" ? std::optional<int>(any) : number(word);
    if (!value) fail_to_read(whole);
    return *value;
  };
  fault.rank = read(rank);
  fault.hit = read(hit);
  if (fault.action == "slow") fault.milliseconds = read(text);
  for (const char* known : {"kill", "stop", "usr1", "exc", "eio", "enospc", "slow", "flip"}) {
    if (fault.action == known) return;
  }
  fail_to_read(whole);
}

std::deque<Fault> read_environment() {
  std::deque<Fault> faults;
  const char* variable = std::getenv("FINETUNE_FAULT");
  std::string_view text = variable == nullptr ? "" : variable;
  while (!text.empty())
    add(faults, take(text, ','));
  return faults;
}

std::deque<Fault>& faults() {
  static std::deque<Fault> all = read_environment();
  return all;
}

FaultAction act(const Fault& fault, std::string_view where) {
  if (fault.action == "kill") std::raise(SIGKILL);
  if (fault.action == "stop") std::raise(SIGSTOP);
  if (fault.action == "usr1") std::raise(SIGUSR1);
  if (fault.action == "slow")
    std::this_thread::sleep_for(std::chrono::milliseconds(fault.milliseconds));
  if (fault.action == "exc") throw Error(ErrorKind::bug, "planted fault at " + fault.point);
  if (fault.action == "eio" || fault.action == "enospc") {
    fail(ErrorKind::io, {std::string(where.empty() ? fault.point : where), "planted fault",
                         std::strerror(fault.action == "eio" ? EIO : ENOSPC), ""});
  }
  return fault.action == "flip" ? FaultAction::flip : FaultAction::none;
}

}  // namespace

void set_rank(int rank) {
  own_rank = rank;
}

void reset() {
  std::deque<Fault> all = read_environment();
  faults() = std::move(all);
  own_rank = 0;
}

FaultAction hit(std::string_view point, std::string_view where) {
  // All are counted before one may throw.
  std::vector<const Fault*> due;
  for (Fault& fault : faults()) {
    if (fault.point != point || (fault.rank != any && fault.rank != own_rank)) continue;
    const int count = ++fault.hits;
    if (fault.hit == any || fault.hit == count) due.push_back(&fault);
  }
  FaultAction action = FaultAction::none;
  for (const Fault* fault : due) {
    if (act(*fault, where) == FaultAction::flip) action = FaultAction::flip;
  }
  return action;
}

}  // namespace finetune::core::fault
