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

}  // namespace finetune::model
