#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a start leaves in starts.jsonl, and in the log: with what it began, and how it ended.

#include <cstdint>
#include <filesystem>
#include <string>

#include "metrics/start_file.hpp"
#include "train/input/input.hpp"
#include "world/world.hpp"

namespace finetune::train {

/// The first row of a start of `num_steps` steps in all, without step, run id and time.
metrics::StartRecord describe_start(const Input& input, const plan::Plan& plan,
                                    const world::World& world, const comm::Topology& topology,
                                    std::int64_t num_steps);

/// Every rank has one; the root's writes. Nothing here is a collective.
class StartNotes {
 public:
  StartNotes(std::filesystem::path root, bool writes) : root_(std::move(root)), writes_(writes) {}

  /// Whether the start before was stopped, or killed, before it was done. Only the writer knows:
  /// false on others.
  bool is_last_unfinished() const;
  /// Returns what it wrote to the log, which says how the start before ended, too.
  std::string begin(metrics::StartRecord record);
  /// Whether there is a start that has not ended yet; it ends here.
  bool end(std::int64_t step, int exit_code, const std::string& reason);

 private:
  std::filesystem::path root_;
  bool writes_;
  bool is_open_ = false;
};

}  // namespace finetune::train
