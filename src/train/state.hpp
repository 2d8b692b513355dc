#pragma once
// SPDX-License-Identifier: Apache-2.0
// Everything of a run that changes from step to step, and its way to and from files.

#include <memory>
#include <vector>

#include "checkpoint/load.hpp"
#include "checkpoint/save.hpp"
#include "model/family.hpp"
#include "optim/adamw.hpp"
#include "plan/plan.hpp"
#include "shard/model_shards.hpp"
#include "train/input.hpp"
#include "train/passes.hpp"
#include "world/world.hpp"

namespace finetune::train {

/// Weights, moments and the objects that compute with them. Refers to `input` and `plan`.
class State {
 public:
  State(const Input& input, const plan::Plan& plan, const comm::Communicator& fsdp);

  Engine engine() { return {input_.architecture, *model_, *ops_, shards_}; }
  shard::ModelShards& shards() { return shards_; }
  optim::AdamW& optimizer() { return optimizer_; }

  /// This rank's part of weights and moments, as checkpoints store it.
  std::vector<checkpoint::StoredSlice> stored();
  std::vector<checkpoint::WantedSlice> wanted();

 private:
  template <typename Slice>
  std::vector<Slice> slices();

  const Input& input_;
  std::unique_ptr<model::Model> model_;
  shard::ModelShards shards_;
  std::unique_ptr<model::Ops> ops_;
  optim::AdamW optimizer_;
};

/// at:: name of a dtype to compute in.
at::ScalarType to_aten(core::DType dtype);

/// Kinds of states in a checkpoint.
inline constexpr const char* kind_master = "master";
inline constexpr const char* kind_exp_avg = "exp_avg";
inline constexpr const char* kind_exp_avg_sq = "exp_avg_sq";

}  // namespace finetune::train
