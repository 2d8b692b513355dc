#pragma once
// SPDX-License-Identifier: Apache-2.0
// A micro-batch as the model reads it.

#include <ATen/ATen.h>

#include <optional>

#include "data/steps/micro_batch.hpp"
#include "model/ops.hpp"
#include "model/sequence.hpp"
#include "train/step/passes.hpp"

namespace finetune::train {

/// int64 [N]: of all B L tokens, or of those that are this rank's among the ranks of cp; and where
/// each row's tokens stand.
struct PassTokens {
  at::Tensor ids_N;     ///< on the device
  at::Tensor labels_N;  ///< on the host, which chooses the tokens that the head sees
  model::Sequence sequence;
};

/// What a rank computes in a pass in which `own` is its part: that, or, where others' tokens may
/// need its experts, a sample whose gradient is zero, which lives for ever.
const std::optional<data::MicroBatch>& computed_of(const Engine& engine,
                                                   const std::optional<data::MicroBatch>& own);

std::optional<PassTokens> prepare(const Engine& engine,
                                  const std::optional<data::MicroBatch>& batch);

/// Which sample every token is of, for the load of experts. `scale` of the load-balancing term.
model::Balance make_balance(const Engine& engine, const data::MicroBatch& batch, double scale);

/// The adapters' dropout for as long as a pass lasts.
class DropoutOfPass {
 public:
  DropoutOfPass(const Engine& engine, const std::optional<data::MicroBatch>& batch);
  ~DropoutOfPass();
  DropoutOfPass(const DropoutOfPass&) = delete;
  DropoutOfPass& operator=(const DropoutOfPass&) = delete;

 private:
  model::Ops& ops_;
};

}  // namespace finetune::train
