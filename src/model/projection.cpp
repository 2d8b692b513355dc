// SPDX-License-Identifier: Apache-2.0
#include "model/projection.hpp"

#include "model/adapter_math.hpp"
#include "model/gradients.hpp"

#include <utility>

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

/// All tokens of dy in.
at::Tensor project_backward_here(const Projection& projection, const at::Tensor& dy_NF,
                                 const at::Tensor& x, std::span<const at::Tensor> kept) {
  Weights& weights = *projection.weights;
  InputTravel ends(projection, x);
  const auto parts = projection.adapted();
  std::optional<Fp8Recipe> fp8;
  if (parts.empty()) {
    const Weight weight = weights.matrix(projection.rows);
    fp8 = weight.fp8;
    ends.give_gradient(matmul_backward(dy_NF, weight, projection.path));
  } else {
    math_of(parts).project_backward(projection, parts, dy_NF, ends, kept);
  }
  for (const TrainedPart& part : weights.trained(projection.rows))
    add_product(weights.gradient(part.rows), outputs(dy_NF, part), ends.input(), projection.path,
                fp8);
  return ends.take_gradient();
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
  if (projection.travels == Travels::outputs)
    return project_backward_here(projection, projection.travel->gather(dy_NF)->wait(), x_ND, kept);
  return project_backward_here(projection, dy_NF, x_ND, kept);
}

InputTravel::InputTravel(const Projection& projection, at::Tensor x) : x_(std::move(x)) {
  if (projection.travels != Travels::inputs) return;
  travel_ = projection.travel.get();
  if (projection.needs_input()) x_arrives_ = travel_->gather(x_);
}

const at::Tensor& InputTravel::input() {
  if (x_arrives_) x_ = std::exchange(x_arrives_, nullptr)->wait();
  return x_;
}

void InputTravel::give_gradient(at::Tensor dx_ND) {
  if (travel_ != nullptr)
    dx_arrives_ = travel_->scatter(dx_ND);
  else
    dx_ = std::move(dx_ND);
}

at::Tensor InputTravel::take_gradient() {
  return dx_arrives_ ? dx_arrives_->wait() : std::move(dx_);
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
