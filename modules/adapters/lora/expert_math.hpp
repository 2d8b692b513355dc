#pragma once
// SPDX-License-Identifier: Apache-2.0
// Low-rank parts of all experts of a layer, as PEFT's ParamWrapper keeps them together: of expert e
// A has rows [e r, (e + 1) r), and B every column whose number is e modulo the number of experts.

#include <ATen/ATen.h>

#include "model/expert_row_products.hpp"
#include "model/parameter_table.hpp"
#include "model/weights.hpp"

namespace finetune::adapters::lora {

/// As model::AdapterMath::project_experts, pull_back_experts and add_expert_gradients.
void project_experts(const model::Weights& weights, const model::Adapted& adapted,
                     const model::ExpertRowProducts& rows, const at::Tensor& x, at::Tensor& y);
void pull_back_experts(const model::Weights& weights, const model::Adapted& adapted,
                       const model::ExpertRowProducts& rows, const at::Tensor& dy, at::Tensor& dx);
void add_expert_gradients(model::Weights& weights, const model::Adapted& adapted,
                          const model::ExpertRowProducts& rows, const at::Tensor& dy,
                          const at::Tensor& x);

/// Adds what A [E r, in] and B [out, r E] make of a row of the table: of one expert, or of all.
void merge_experts(const model::Adapted& adapted, const at::Tensor& a, const at::Tensor& b,
                   at::Tensor& values);

}  // namespace finetune::adapters::lora
