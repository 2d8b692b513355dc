// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/expert_math.hpp"

#include "adapters/lora/parts.hpp"
#include "model/gradients.hpp"

namespace finetune::adapters::lora {
namespace {

using model::Adapted;

/// As a product reads them: of the inputs [E, r, in], of the outputs [E, out, r].
struct Sides {
  at::Tensor inputs_ERI;
  at::Tensor outputs_EOR;
};

Sides sides_of(const at::Tensor& a, const at::Tensor& b, const Adapted& adapted) {
  const std::int64_t num = adapted.together.num;
  const at::Tensor of_a = a.view({num, -1, a.size(1)});
  const at::Tensor of_b = b.view({b.size(0), -1, num}).permute({2, 0, 1});
  if (adapted.of_transpose) return {of_b.transpose(1, 2), of_a.transpose(1, 2)};
  return {of_a, of_b};
}

/// Contiguous: a product per expert reads them, or a kernel that takes no other strides.
Sides sides_of(const model::Weights& weights, const Adapted& adapted) {
  const Sides sides = sides_of(weights.weight({adapted.parts[LowRank::a], 1}),
                               weights.weight({adapted.parts[LowRank::b], 1}), adapted);
  return {sides.inputs_ERI.contiguous(), sides.outputs_EOR.contiguous()};
}

at::Tensor low_of(const model::ExpertRowProducts& rows, const at::Tensor& x, const Sides& sides,
                  const Adapted& adapted) {
  return rows.product(x, sides.inputs_ERI).mul_(adapted.scale);
}

at::Tensor d_low_of(const model::ExpertRowProducts& rows, const at::Tensor& dy, const Sides& sides,
                    const Adapted& adapted) {
  return rows.product(dy, sides.outputs_EOR.transpose(1, 2)).mul_(adapted.scale);
}

void add(const model::GradientSlot& slot, const at::Tensor& gradient) {
  model::add_vector(slot, gradient.reshape(slot.tensor.sizes()));
}

}  // namespace

void project_experts(const model::Weights& weights, const Adapted& adapted,
                     const model::ExpertRowProducts& rows, const at::Tensor& x, at::Tensor& y) {
  const Sides sides = sides_of(weights, adapted);
  rows.add_product(y, low_of(rows, x, sides, adapted), sides.outputs_EOR);
}

void pull_back_experts(const model::Weights& weights, const Adapted& adapted,
                       const model::ExpertRowProducts& rows, const at::Tensor& dy, at::Tensor& dx) {
  const Sides sides = sides_of(weights, adapted);
  rows.add_product(dx, d_low_of(rows, dy, sides, adapted), sides.inputs_ERI.transpose(1, 2));
}

void add_expert_gradients(model::Weights& weights, const Adapted& adapted,
                          const model::ExpertRowProducts& rows, const at::Tensor& dy,
                          const at::Tensor& x) {
  const Sides sides = sides_of(weights, adapted);
  // Of the outputs' side [E, out, r], of the inputs' side [E, r, in].
  const at::Tensor d_outputs = rows.outer_product(dy, low_of(rows, x, sides, adapted));
  const at::Tensor d_inputs = rows.outer_product(d_low_of(rows, dy, sides, adapted), x);
  const at::Tensor d_a = adapted.of_transpose ? d_outputs.transpose(1, 2) : d_inputs;
  const at::Tensor d_b = adapted.of_transpose ? d_inputs.transpose(1, 2) : d_outputs;
  add(weights.gradient({adapted.parts[LowRank::a], 1}), d_a);
  add(weights.gradient({adapted.parts[LowRank::b], 1}), d_b.permute({1, 2, 0}));
}

void merge_experts(const Adapted& adapted, const at::Tensor& a, const at::Tensor& b,
                   at::Tensor& values) {
  const Sides sides = sides_of(a, b, adapted);
  if (values.dim() == 2) {
    const auto& of = adapted.together;
    const at::Tensor outputs =
        sides.outputs_EOR.select(0, of.i).narrow(0, of.first_output, values.size(0));
    values.addmm_(outputs, sides.inputs_ERI.select(0, of.i), 1, adapted.scale);
    return;
  }
  at::Tensor by_outputs = adapted.together.is_by_inputs ? values.transpose(1, 2) : values;
  by_outputs.baddbmm_(sides.outputs_EOR, sides.inputs_ERI, 1, adapted.scale);
}

}  // namespace finetune::adapters::lora
