#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which units each part of a pass needs, in the order of the forward pass.

#include <cstdint>
#include <exception>
#include <vector>

#include "model/family.hpp"
#include "shard/model_shards.hpp"

namespace finetune::train {

/// Stage 0 is the embedding, stages 1 to L are the blocks, stage L + 1 is the head. A unit may
/// belong to several: a tied embedding to the first and the last, a bucket of everything to all.
class Stages {
 public:
  Stages(const model::Model& model, std::int64_t num_layers, const shard::ModelShards& shards);

  int embedding() const { return 0; }
  int block(std::int64_t i_layer) const { return 1 + static_cast<int>(i_layer); }
  int head() const { return static_cast<int>(units_.size()) - 1; }

  const std::vector<int>& units(int stage) const { return units_[static_cast<std::size_t>(stage)]; }
  /// Units that every stage has: gathered once a pass.
  const std::vector<int>& everywhere() const { return everywhere_; }
  /// Units whose gradient is complete once backward has passed `stage`: no earlier one has them.
  const std::vector<int>& completed(int stage) const {
    return completed_[static_cast<std::size_t>(stage)];
  }

 private:
  std::vector<std::vector<int>> units_;
  std::vector<std::vector<int>> completed_;
  std::vector<int> everywhere_;
};

/// Units of a stage that are gathered for as long as this lives. Collective on fsdp.
class OpenStage {
 public:
  OpenStage(shard::ModelShards& shards, const std::vector<int>& units);
  /// While an exception unwinds nothing is closed: closing waits for other ranks.
  ~OpenStage() noexcept(false);
  OpenStage(const OpenStage&) = delete;
  OpenStage& operator=(const OpenStage&) = delete;

 private:
  shard::ModelShards& shards_;
  const std::vector<int>& units_;
  int num_exceptions_ = std::uncaught_exceptions();
};

}  // namespace finetune::train
