#pragma once
// SPDX-License-Identifier: Apache-2.0
// Private to model: what its autograd functions keep in addition to tensors, and how they add
// gradients of weights.

#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>

#include "model/ops.hpp"
#include "model/products.hpp"

namespace finetune::model {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

/// Handles travel through the autograd context as integers; they outlive it, because a step's graph
/// never leaves the step.
template <typename T>
std::int64_t as_integer(T* pointer) {
  return reinterpret_cast<std::int64_t>(pointer);
}
template <typename T>
T& from_integer(const AutogradContext* ctx, const char* key) {
  return *reinterpret_cast<T*>(ctx->saved_data.at(key).toInt());
}

inline void save_rows(AutogradContext* ctx, Weights& weights, RowRange rows) {
  ctx->saved_data["weights"] = as_integer(&weights);
  ctx->saved_data["first"] = std::int64_t{rows.first};
  ctx->saved_data["num"] = std::int64_t{rows.num};
}
inline Weights& saved_weights(const AutogradContext* ctx) {
  return from_integer<Weights>(ctx, "weights");
}
inline RowRange saved_rows(const AutogradContext* ctx) {
  return {static_cast<int>(ctx->saved_data.at("first").toInt()),
          static_cast<int>(ctx->saved_data.at("num").toInt())};
}

inline Path saved_path(const AutogradContext* ctx) {
  return static_cast<Path>(ctx->saved_data.at("path").toInt());
}
inline void save_path(AutogradContext* ctx, Path path) {
  ctx->saved_data["path"] = static_cast<std::int64_t>(path);
}

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

inline void add_vector(const GradientSlot& slot, const at::Tensor& gradient) {
  if (!slot.tensor.defined()) return;
  at::Tensor target = slot.tensor;
  if (slot.accumulate) {
    target.add_(gradient);
  } else {
    target.copy_(gradient);
  }
}

}  // namespace finetune::model
