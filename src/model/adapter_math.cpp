// SPDX-License-Identifier: Apache-2.0
#include "model/adapter_math.hpp"

#include "core/error.hpp"

namespace finetune::model {

at::Tensor AdapterMath::bias(const Projection&, const std::vector<AdaptedPart>&,
                             const at::Tensor&) const {
  core::check(false, "an adapter that puts parts on top of biases computes with them");
  return {};
}

void AdapterMath::bias_backward(const Projection&, const std::vector<AdaptedPart>&,
                                const at::Tensor&) const {
  core::check(false, "an adapter that puts parts on top of biases computes with them");
}

void AdapterMath::embed(const Projection&, const AdaptedPart&, const at::Tensor&,
                        at::Tensor&) const {
  core::check(false, "an adapter that puts parts on top of embeddings computes with them");
}

void AdapterMath::embed_backward(const Projection&, const AdaptedPart&, const at::Tensor&,
                                 const at::Tensor&) const {
  core::check(false, "an adapter that puts parts on top of embeddings computes with them");
}

void AdapterMath::project_experts(const Weights&, const Adapted&, const ExpertRowProducts&,
                                  const at::Tensor&, at::Tensor&) const {
  core::check(false, "an adapter that puts parts on top of experts computes with them");
}

void AdapterMath::pull_back_experts(const Weights&, const Adapted&, const ExpertRowProducts&,
                                    const at::Tensor&, at::Tensor&) const {
  core::check(false, "an adapter that puts parts on top of experts computes with them");
}

void AdapterMath::add_expert_gradients(Weights&, const Adapted&, const ExpertRowProducts&,
                                       const at::Tensor&, const at::Tensor&) const {
  core::check(false, "an adapter that puts parts on top of experts computes with them");
}

std::vector<at::Tensor> AdapterMath::begin(const Adapted&, const at::Tensor&,
                                           const std::vector<std::vector<std::int64_t>>&,
                                           std::uint64_t) const {
  core::check(false, "an adapter whose parts follow from weights says how");
  return {};
}

}  // namespace finetune::model
