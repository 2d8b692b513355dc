#pragma once
// SPDX-License-Identifier: Apache-2.0
// starts.jsonl: when a run was started, with what, and how each start ended. It outlives kills and
// restarts: rows are appended and never cut, and a start without an end was killed.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace finetune::metrics {

inline constexpr const char* start_file_name = "starts.jsonl";

struct StartRecord {
  double unix_time_s = 0;
  std::int64_t step = 0;       ///< updates done before it
  std::int64_t num_steps = 0;  ///< of the whole run
  std::string run_id = {};
  std::string model = {};  ///< folder
  std::string family = {};
  std::string method = {};  ///< adapter, or "full"
  std::int64_t num_parameters = 0;
  std::int64_t num_trainable = 0;
  std::int64_t num_ranks = 0;
  std::int64_t num_nodes = 0;
  std::vector<std::string> hosts = {};  ///< one per node
  std::string device = {};              ///< "cpu" or "gpu"
  std::string mesh = {};                ///< as the log has it
  std::string build = {};
  /// Of the rank that needs most, at the peak of a step, by category.
  std::vector<std::pair<std::string, std::int64_t>> planned_bytes = {};
  std::int64_t planned_tensor_bytes = 0;  ///< of their sum: what libtorch's allocator hands out
};

struct EndRecord {
  double unix_time_s = 0;
  std::int64_t step = 0;
  int exit_code = 0;
  std::string reason = {};
};

std::string to_json(const StartRecord& record);
std::string to_json(const EndRecord& record);

/// Appends a row to the file of the output folder `root`, and syncs it. One that cannot be written
/// is a warning. For the root rank.
void append_start(const std::filesystem::path& root, const StartRecord& record);
void append_end(const std::filesystem::path& root, const EndRecord& record);

}  // namespace finetune::metrics
