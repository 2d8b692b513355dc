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

namespace {

/// All tokens in, all tokens out.
Projected project_here(const Projection& projection, const at::Tensor& x_ND) {
  const auto parts = projection.adapted();
  if (!parts.empty()) return math_of(parts).project(projection, parts, x_ND);
  return {matmul(x_ND, projection.weights->matrix(projection.rows), projection.path), {}};
}

void add_gradients(const Projection& projection, const at::Tensor& dy_NF, const at::Tensor& x_ND) {
  Weights& weights = *projection.weights;
  for (const TrainedPart& part : weights.trained(projection.rows))
    add_product(weights.gradient(part.rows), outputs(dy_NF, part), x_ND, projection.path);
}

at::Tensor input_gradient(const Projection& projection, const at::Tensor& dy_NF) {
  return matmul_backward(dy_NF, projection.weights->matrix(projection.rows), projection.path);
}

at::Tensor project_backward_here(const Projection& projection, const at::Tensor& dy_NF,
                                 const at::Tensor& x_ND, std::span<const at::Tensor> kept) {
  add_gradients(projection, dy_NF, x_ND);
  const auto parts = projection.adapted();
  if (!parts.empty()) return math_of(parts).project_backward(projection, parts, dy_NF, x_ND, kept);
  return input_gradient(projection, dy_NF);
}

/// Of a product whose input was gathered.
at::Tensor gathered_backward(const Projection& projection, const at::Tensor& dy_NF,
                             const at::Tensor& x_nD, std::span<const at::Tensor> kept) {
  const TokenTravel& travel = *projection.travel;
  const auto input = projection.needs_input() ? travel.gather(x_nD) : nullptr;
  if (!projection.adapted().empty()) {
    const at::Tensor x_ND = input ? input->wait() : at::Tensor();
    return travel.scatter(project_backward_here(projection, dy_NF, x_ND, kept))->wait();
  }
  const auto d_input = travel.scatter(input_gradient(projection, dy_NF));
  if (input) add_gradients(projection, dy_NF, input->wait());
  return d_input->wait();
}

}  // namespace

Projected project(const Projection& projection, const at::Tensor& x_ND) {
  if (projection.travels == Travels::inputs)
    return project_here(projection, projection.travel->gather(x_ND)->wait());
  Projected projected = project_here(projection, x_ND);
  if (projection.travels == Travels::outputs)
    projected.y_NF = projection.travel->scatter(projected.y_NF)->wait();
  return projected;
}

at::Tensor project_backward(const Projection& projection, const at::Tensor& dy_NF,
                            const at::Tensor& x_ND, std::span<const at::Tensor> kept) {
  if (projection.travels == Travels::inputs)
    return gathered_backward(projection, dy_NF, x_ND, kept);
  if (projection.travels == Travels::outputs)
    return project_backward_here(projection, projection.travel->gather(dy_NF)->wait(), x_ND, kept);
  return project_backward_here(projection, dy_NF, x_ND, kept);
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
