#pragma once
// SPDX-License-Identifier: Apache-2.0
// What its autograd functions keep in addition to tensors.

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <utility>

#include "model/kept.hpp"
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

}  // namespace finetune::model
