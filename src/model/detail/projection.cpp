// SPDX-License-Identifier: Apache-2.0
#include "model/detail/projection.hpp"

#include "model/adapter_math.hpp"
#include "model/gradients.hpp"

namespace finetune::model {
namespace {

/// All parts of a range are of one adapter.
const AdapterMath& math_of(const std::vector<AdaptedPart>& parts) {
  return *parts.front().adapted->math;
}

}  // namespace

std::vector<AdaptedPart> Projection::adapted() const {
  return uses_adapter ? weights->adapted(rows) : std::vector<AdaptedPart>();
}

bool Projection::needs_input() const {
  if (!weights->trained(rows).empty()) return true;
  const auto parts = adapted();
  return !parts.empty() && math_of(parts).needs_input(parts);
}

Projected project(const Projection& projection, const at::Tensor& x_ND) {
  const auto parts = projection.adapted();
  if (!parts.empty()) return math_of(parts).project(projection, parts, x_ND);
  return {matmul(x_ND, projection.weights->matrix(projection.rows), projection.path), {}};
}

at::Tensor project_backward(const Projection& projection, const at::Tensor& dy_NF,
                            const at::Tensor& x_ND, std::span<const at::Tensor> kept) {
  Weights& weights = *projection.weights;
  for (const TrainedPart& part : weights.trained(projection.rows))
    add_product(weights.gradient(part.rows), outputs(dy_NF, part), x_ND, projection.path);
  const auto parts = projection.adapted();
  if (!parts.empty()) return math_of(parts).project_backward(projection, parts, dy_NF, x_ND, kept);
  return matmul_backward(dy_NF, weights.matrix(projection.rows), projection.path);
}

at::Tensor bias_of(const Projection& projection) {
  const auto parts = projection.adapted();
  const at::Tensor bias_F = projection.weights->weight(projection.rows);
  return parts.empty() ? bias_F : math_of(parts).bias(projection, parts, bias_F);
}

void bias_backward(const Projection& projection, const at::Tensor& dy_NF) {
  Weights& weights = *projection.weights;
  for (const TrainedPart& part : weights.trained(projection.rows))
    add_vector(weights.gradient(part.rows), outputs(dy_NF, part).sum(0, false, at::kFloat));
  const auto parts = projection.adapted();
  if (!parts.empty()) math_of(parts).bias_backward(projection, parts, dy_NF);
}

}  // namespace finetune::model
