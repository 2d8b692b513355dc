#pragma once
// SPDX-License-Identifier: Apache-2.0
// Units that are gathered while a part of a pass computes with them.

#include <exception>
#include <vector>

#include "shard/model_shards.hpp"

namespace finetune::train {

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
