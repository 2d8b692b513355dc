#pragma once
// SPDX-License-Identifier: Apache-2.0
// Private to model: what its autograd functions keep in addition to tensors, and how they add
// gradients of weights.

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <utility>

#include "model/ops.hpp"
#include "model/products.hpp"

namespace finetune::model {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

/// A value on its way from forward to backward; it lives as long as the context.
template <typename T>
struct Carried final : torch::CustomClassHolder {
  explicit Carried(T carried) : value(std::move(carried)) {}
  T value;
};

template <typename T>
void carry(AutogradContext* ctx, const char* key, T value) {
  ctx->saved_data[key] =
      c10::IValue::make_capsule(c10::make_intrusive<Carried<T>>(std::move(value)));
}
template <typename T>
const T& carried(const AutogradContext* ctx, const char* key) {
  return dynamic_cast<const Carried<T>&>(*ctx->saved_data.at(key).toCapsule()).value;
}

/// Weights outlive a step's graph, which never leaves the step.
struct WeightRows {
  Weights* weights = nullptr;
  RowRange rows;
};

inline void save_rows(AutogradContext* ctx, Weights& weights, RowRange rows) {
  carry(ctx, "rows", WeightRows{&weights, rows});
}
inline Weights& saved_weights(const AutogradContext* ctx) {
  return *carried<WeightRows>(ctx, "rows").weights;
}
inline RowRange saved_rows(const AutogradContext* ctx) {
  return carried<WeightRows>(ctx, "rows").rows;
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
