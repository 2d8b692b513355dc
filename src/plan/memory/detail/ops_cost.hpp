#pragma once
// SPDX-License-Identifier: Apache-2.0
// The stages of a model run on the sizes of their tensors (model::CostOps): one micro-batch of full
// sequences, as the run would compute it.

#include <cstdint>

#include "model/cost/cost.hpp"
#include "model/cost/cost_ops.hpp"
#include "model/sides.hpp"
#include "plan/machine/machine.hpp"
#include "plan/plan.hpp"

namespace finetune::plan {

/// What ranks share by such settings, seen from one with the largest parts.
model::RankShare share_of(const ParallelSettings& parallel);

/// Tokens of a micro-batch of full sequences that a rank has its part of.
std::int64_t tokens_of(const PlanInput& request);

/// How this program computes passes other than products.
Passes own_passes(const PlanInput& request);

/// A stage's ops, and the tensors that whoever runs it holds.
struct StageCost {
  model::CostTape tape;
  model::TensorSize input;
  model::TensorSize output;
};

class OpsCost {
 public:
  /// `table`: what the rank has of it (largest_table). `passes`: how those other than
  /// products are computed. Both outlive this.
  OpsCost(const PlanInput& request, const model::ParameterTable& table, Passes passes);

  std::int64_t num_blocks() const { return request_.architecture.num_layers; }
  StageCost embedding() const;
  StageCost block(std::int64_t i_layer) const;
  /// What lies beside the stream.
  const model::SideLayout& sides() const { return sides_; }
  std::int64_t side_bytes(int slot) const;
  /// The final norm, and the head with the loss.
  StageCost head() const;

 private:
  model::CostOps ops() const;
  /// Between blocks.
  model::TensorSize activations(model::CostOps& ops) const;

  const PlanInput& request_;
  /// The table if it is a decoder's; else one of the same numbers, all of it trained.
  model::ParameterTable own_table_;
  const model::ParameterTable& table_;
  model::CostSettings settings_;
  model::SideLayout sides_;
  std::int64_t tokens_;
};

}  // namespace finetune::plan
