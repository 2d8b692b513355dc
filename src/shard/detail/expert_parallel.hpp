#pragma once
// SPDX-License-Identifier: Apache-2.0
// Ops of a rank that holds some of the experts of each layer.

#include <ATen/ATen.h>

#include <memory>

#include "comm/group.hpp"
#include "model/expert_dispatch.hpp"
#include "model/part.hpp"
#include "shard/detail/context_parallel.hpp"

namespace finetune::shard {

/// Each rank of `ep` sends the copies of its tokens to the ranks that hold their experts, and gets
/// back what these computed; none is dropped, however unevenly they are chosen. Rows of an expert
/// come in the order of the ranks that sent them, then of their tokens, so results do not depend on
/// timing. Source: Lepikhin et al. 2020, GShard (arXiv 2006.16668).
///
/// Every route and every way there or back is collective on `ep`.
class SharedExperts final : public model::ExpertDispatch {
 public:
  /// `place` is this rank's, and place.ep the size of `ep`.
  SharedExperts(comm::Group& ep, const model::PartPlace& place) : ep_(ep), place_(place) {}

  std::shared_ptr<const model::ExpertRoute> route(const at::Tensor& ends,
                                                  model::ExpertTensors tensors) const override;

 private:
  comm::Group& ep_;
  model::PartPlace place_;
};

/// With whom a rank shares sequences and experts; null: with nobody. And its place where parts of
/// the model are shared out.
struct SharedWith {
  comm::Group* cp = nullptr;
  plan::ContextMethod method = plan::ContextMethod::automatic;
  comm::Group* ep = nullptr;
  model::PartPlace place = {};
};

/// As ContextParallelOps, on a rank's part of the experts. Tokens of experts that are among neither
/// this rank's nor another one's of `ep` contribute nothing: ranks of tensor parallelism add that
/// up.
class ExpertParallelOps : public ContextParallelOps {
 public:
  /// with.ep may be null: this rank computes those of its tokens whose experts it holds.
  ExpertParallelOps(model::Weights& weights, const SharedWith& with,
                    model::Path path = model::Path::kernels,
                    model::Recompute recompute = model::Recompute::nothing);

  /// Collective on `ep`, forward and backward.
  at::Tensor experts(const at::Tensor& x_ND, const at::Tensor& routed_ND,
                     const model::ExpertRows& rows, const model::Experts& experts,
                     const model::Sequence& sequence) override;

 protected:
  /// The same of tokens that `travel` gathers, and whose sums it scatters; null: of x's.
  at::Tensor experts_of(const at::Tensor& x_ND, const at::Tensor& routed_ND,
                        const model::ExpertRows& rows, const model::Experts& experts,
                        const model::Sequence& sequence,
                        std::shared_ptr<const model::TokenTravel> travel);

 private:
  std::unique_ptr<model::ExpertDispatch> dispatch_;
};

}  // namespace finetune::shard
