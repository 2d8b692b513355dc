#pragma once
// SPDX-License-Identifier: Apache-2.0
// Ops of a rank that has a part of every sequence: context parallelism.

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>

#include "comm/group.hpp"
#include "model/context.hpp"
#include "model/ops.hpp"
#include "plan/layout/settings.hpp"
#include "shard/detail/context_ways.hpp"

namespace finetune::shard {

/// Everything but attention is computed token by token, on this rank's tokens as
/// `model::Sequence::context` has them; queries see the keys of all ranks. Gradients of weights are
/// this rank's terms, which fsdp sums. A sequence without a context, as of a prompt that every rank
/// has whole, is computed as on one rank.
///
/// Collective on `cp`: attention, forward and backward. Throws: what `cp` throws.
class ContextParallelOps : public model::Ops {
 public:
  /// `weights` and `cp` outlive this; null: sequences are whole.
  ContextParallelOps(model::Weights& weights, comm::Group* cp, plan::ContextMethod method,
                     model::Path path = model::Path::kernels,
                     model::Recompute recompute = model::Recompute::nothing)
      : Ops(weights, path, recompute), cp_(cp), method_(method) {}

  at::Tensor attention(const at::Tensor& qkv, const model::AttentionShape& shape,
                       const model::Sequence& sequence, std::int64_t i_layer) override;

 private:
  /// Found by the first layer of a pass that sees as far.
  const std::shared_ptr<const ContextWay>& way(const at::Tensor& qkv,
                                               const model::AttentionShape& shape,
                                               const model::Sequence& sequence);

  comm::Group* cp_;
  plan::ContextMethod method_;
  std::shared_ptr<const model::ContextLayout> of_;  ///< the pass that `ways_` are of
  std::map<model::Reach, std::shared_ptr<const ContextWay>> ways_;
};

}  // namespace finetune::shard
