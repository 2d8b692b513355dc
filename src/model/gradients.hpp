#pragma once
// SPDX-License-Identifier: Apache-2.0
// How gradients of weights are added to their slots.

#include <ATen/ATen.h>

#include "model/products.hpp"
#include "model/weights.hpp"

namespace finetune::model {

/// dW = dy^T x, into the slot.
inline void add_product(const GradientSlot& slot, const at::Tensor& dy_NF, const at::Tensor& x_ND,
                        Path path) {
  if (!slot.tensor.defined()) return;
  at::Tensor target = slot.tensor;
  if (slot.accumulate) {
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
