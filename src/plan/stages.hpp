#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which units each part of a pass needs, in the order of the forward pass.

#include <cstdint>
#include <vector>

#include "model/architecture.hpp"
#include "model/parameter_table.hpp"
#include "plan/shard_map.hpp"

namespace finetune::plan {

/// Stage 0 is the embedding, stages 1 to L are the blocks, stage L + 1 is the head. A unit may
/// belong to several: a tied embedding to the first and the last, a bucket of everything to all,
/// adapters to those of their matrices.
class Stages {
 public:
  /// `head_row`: the embedding's if tied.
  Stages(const model::ParameterTable& table, const ShardMap& map, int head_row);

  int num_stages() const { return static_cast<int>(units_.size()); }
  int embedding() const { return 0; }
  int block(std::int64_t i_layer) const { return 1 + static_cast<int>(i_layer); }
  int head() const { return num_stages() - 1; }

  const std::vector<int>& units(int stage) const { return units_[static_cast<std::size_t>(stage)]; }
  /// Units that neighbouring stages share: gathered once a pass.
  const std::vector<int>& all_along() const { return all_along_; }
  /// Units whose gradient is complete once backward has passed `stage`: no earlier one has them.
  const std::vector<int>& completed(int stage) const {
    return completed_[static_cast<std::size_t>(stage)];
  }

 private:
  std::vector<std::vector<int>> units_;
  std::vector<std::vector<int>> completed_;
  std::vector<int> all_along_;
};

/// The head's matrix, which is the embedding's if tied.
int head_row(const model::Architecture& architecture, const model::ParameterTable& table);

}  // namespace finetune::plan
