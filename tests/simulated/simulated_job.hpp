#pragma once
// SPDX-License-Identifier: Apache-2.0
// Jobs of tests/restart on the simulated device, and what they asked of it.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "restart/job.hpp"
#include "support/folders.hpp"

namespace finetune::tests {

/// The same words for the program that computes on simulated GPUs.
inline Words on_simulated_gpus(Words words) {
  std::ranges::replace(words, (build_folder() / "finetune").string(),
                       (build_folder() / "tests/finetune_simulated").string());
  return words;
}

/// What rank 0 of a job asked of its device.
struct Asked {
  std::map<std::string, std::int64_t> launches;  ///< by operation
  std::map<std::string, std::int64_t> syncs;     ///< by what made the host wait
  std::map<std::string, std::int64_t> bytes;     ///< read and written by operations, not kernels
  std::int64_t num_launches = 0;
  std::int64_t num_syncs = 0;
  std::int64_t peak_bytes = 0;
};

inline Asked read_report(const std::filesystem::path& path) {
  Asked asked;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t end = line.rfind(' ');
    const std::int64_t number = std::stoll(line.substr(end + 1));
    const std::size_t start = line.find(' ');
    const std::string kind = line.substr(0, start);
    const std::string name = start < end ? line.substr(start + 1, end - start - 1) : "";
    if (kind == "launches") asked.num_launches = number;
    if (kind == "syncs") asked.num_syncs = number;
    if (kind == "peak_bytes") asked.peak_bytes = number;
    if (kind == "launch") asked.launches[name] = number;
    if (kind == "sync") asked.syncs[name] = number;
    if (kind == "bytes") asked.bytes[name] = number;
  }
  return asked;
}

/// A setting of the environment for as long as this lives.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Setting() { ::unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

/// Runs the job on simulated GPUs; where each rank reports what it asked for, see report_of.
inline Outcome run_on_simulated_gpus(const Job& job, int ranks, const Words& more = {}) {
  const std::string report = (job.folder() / "report").string();
  const Setting to("FINETUNE_SIMULATED_REPORT", report);
  return run_program(on_simulated_gpus(job.command(ranks, more)), job.folder());
}

/// Of the last such run.
inline Asked report_of(const Job& job, int rank = 0) {
  return read_report(job.folder() / ("report." + std::to_string(rank)));
}

}  // namespace finetune::tests
