// SPDX-License-Identifier: Apache-2.0
#include "train/open_stage.hpp"

namespace finetune::train {

OpenStage::OpenStage(shard::ModelShards& shards, const std::vector<int>& units)
    : shards_(shards), units_(units) {
  for (const int unit : units_)
    shards_.open(unit);
}

OpenStage::~OpenStage() noexcept(false) {
  if (std::uncaught_exceptions() > num_exceptions_) return;
  for (const int unit : units_)
    shards_.close(unit);
}

}  // namespace finetune::train
