#pragma once
// SPDX-License-Identifier: Apache-2.0
// How gradients of weights are added to their slots.

#include <ATen/ATen.h>

#include <optional>

#include "model/fp8_products.hpp"
#include "model/products.hpp"
#include "model/weights.hpp"

namespace finetune::model {

/// dW = dy^T x, into the slot; `fp8`: of the product that it is the gradient of.
inline void add_product(const GradientSlot& slot, const at::Tensor& dy_NF, const at::Tensor& x_ND,
                        Path path, const std::optional<Fp8Recipe>& fp8 = {}) {
  if (!slot.tensor.defined()) return;
  at::Tensor target = slot.tensor;
  if (fp8 && fp8->weight_gradients) {
    if (!slot.accumulate) return fp8_weight_gradient_out(target, dy_NF, x_ND, *fp8, path);
    at::Tensor gradient = at::empty_like(target);
    fp8_weight_gradient_out(gradient, dy_NF, x_ND, *fp8, path);
    target.add_(gradient);
  } else if (slot.accumulate) {
    product_add(target, dy_NF.t(), x_ND, path);
  } else {
    product_out(target, dy_NF.t(), x_ND, path);
  }
}

/// The last dim's elements that the rows of `part` make.
inline at::Tensor outputs(const at::Tensor& dy, const TrainedPart& part) {
  return part.num_outputs == 0 ? dy : dy.narrow(-1, part.first_output, part.num_outputs);
}

/// The columns of a product that `part` changes.
inline at::Tensor outputs(const at::Tensor& y_NF, const AdaptedPart& part) {
  return y_NF.narrow(1, part.first_output, part.num_outputs);
}

/// A gradient with as many elements as the slot.
inline void add_vector(const GradientSlot& slot, const at::Tensor& gradient) {
  if (!slot.tensor.defined()) return;
  at::Tensor target = slot.tensor;
  if (slot.accumulate) {
    target.add_(gradient.view(target.sizes()));
  } else {
    target.copy_(gradient.view(target.sizes()));
  }
}

}  // namespace finetune::model
