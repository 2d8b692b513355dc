// SPDX-License-Identifier: Apache-2.0
#include "simulated/device/counters.hpp"

#include <c10/util/Backtrace.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "simulated/device/arena.hpp"

namespace finetune::simulated {
namespace {

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void write_report() {
  const std::string path = setting("FINETUNE_SIMULATED_REPORT");
  const std::string rank = setting("OMPI_COMM_WORLD_RANK");
  if (!path.empty()) Counters::here().write(path + "." + (rank.empty() ? "0" : rank));
}

std::int64_t total(const std::map<std::string, std::int64_t>& counts) {
  std::int64_t sum = 0;
  for (const auto& [name, count] : counts)
    sum += count;
  return sum;
}

}  // namespace

Counters& Counters::here() {
  static Counters* const counters = new Counters();
  return *counters;
}

Counters::Counters() : traced_(setting("FINETUNE_SIMULATED_TRACE")) {
  std::atexit(write_report);
}

void Counters::launch(const std::string& operation) {
  const std::lock_guard lock(mutex_);
  ++launches_[operation];
  if (operation == traced_) fmt::print(stderr, "launch {}\n{}\n", operation, c10::get_backtrace());
}

void Counters::sync(const std::string& operation) {
  const std::lock_guard lock(mutex_);
  ++syncs_[operation];
  if (traced_ == "sync") fmt::print(stderr, "sync {}\n{}\n", operation, c10::get_backtrace());
}

void Counters::move(const std::string& operation, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_[operation] += bytes;
}

Totals Counters::totals() const {
  const std::lock_guard lock(mutex_);
  return {total(launches_), total(bytes_)};
}

void Counters::write(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  std::ofstream file(path);
  file << fmt::format("launches {}\nsyncs {}\npeak_bytes {}\n", total(launches_), total(syncs_),
                      Arena::here().peak_bytes());
  for (const auto& [name, count] : launches_)
    file << fmt::format("launch {} {}\n", name, count);
  for (const auto& [name, count] : syncs_)
    file << fmt::format("sync {} {}\n", name, count);
  for (const auto& [name, count] : bytes_)
    file << fmt::format("bytes {} {}\n", name, count);
}

}  // namespace finetune::simulated
