// SPDX-License-Identifier: Apache-2.0
#include "model/projection.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "model/activations.hpp"
#include "model/autograd_context.hpp"

namespace finetune::model {
namespace {

/// Multiplies the columns of each part with its scale; all at once where they are equal.
void scale_parts(at::Tensor& low_NR, const Weights& weights,
                 const std::vector<LowRankPart>& parts) {
  const double first_scale = parts.front().rows.scale;
  if (std::all_of(parts.begin(), parts.end(),
                  [&](const LowRankPart& part) { return part.rows.scale == first_scale; })) {
    low_NR.mul_(first_scale);
    return;
  }
  std::int64_t first = 0;
  for (const LowRankPart& part : parts) {
    const std::int64_t rank = weights.weight({part.rows.b, 1}).size(1);
    low_NR.narrow(1, first, rank).mul_(part.rows.scale);
    first += rank;
  }
}

/// The A of all parts, which follow each other: one matrix [sum of ranks, D].
RowRange all_a(const std::vector<LowRankPart>& parts) {
  const RowRange rows{parts.front().rows.a, static_cast<int>(parts.size())};
  core::check(parts.back().rows.a == rows.first + rows.num - 1,
              "the A of matrices read as one follow each other");
  return rows;
}

at::Tensor input_of_a(const Projection& projection, const at::Tensor& x_ND) {
  return projection.dropout
             ? dropout(x_ND, *projection.dropout, projection.rows.first, projection.path)
             : x_ND;
}

at::Tensor columns(const at::Tensor& y_NF, const LowRankPart& part) {
  return y_NF.narrow(1, part.first_output, part.num_outputs);
}

/// Factor of each output: magnitude / norm of the row of weights; 1 where there is none, and where
/// the row is zero: it has no direction, and 0 / 0 would make every output of the model NaN.
at::Tensor output_factors(const Weights& weights, const std::vector<LowRankPart>& parts,
                          const at::Tensor& norms_F) {
  at::Tensor factors = at::ones_like(norms_F);
  for (const LowRankPart& part : parts) {
    if (part.rows.magnitude < 0) continue;
    const at::Tensor magnitude = weights.weight({part.rows.magnitude, 1}).to(at::kFloat);
    const at::Tensor norms = norms_F.narrow(0, part.first_output, part.num_outputs);
    factors.narrow(0, part.first_output, part.num_outputs)
        .copy_(at::where(norms > 0, magnitude / norms, 1));
  }
  return factors;
}

bool has_magnitudes(const std::vector<LowRankPart>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const LowRankPart& part) { return part.rows.magnitude >= 0; });
}

at::Tensor norms_of(const Weights& weights, const std::vector<LowRankPart>& parts,
                    const at::Tensor& w_FD, Path path) {
  at::Tensor norms = at::ones({w_FD.size(0)}, w_FD.options().dtype(at::kFloat));
  for (const LowRankPart& part : parts) {
    const at::Tensor a = weights.weight({part.rows.a, 1}), b = weights.weight({part.rows.b, 1});
    norms.narrow(0, part.first_output, part.num_outputs)
        .copy_(adapted_row_norms(w_FD.narrow(0, part.first_output, part.num_outputs), a, b,
                                 part.rows.scale, path));
  }
  return norms;
}

/// Gradients of magnitudes; returns that of the sum they scale.
at::Tensor magnitude_backward(const Projection& projection, const std::vector<LowRankPart>& parts,
                              const at::Tensor& dy_NF, const at::Tensor& z_NF,
                              const at::Tensor& norms_F) {
  const at::Tensor d_factors = at::mul(dy_NF, z_NF).sum(0, /*keepdim=*/false, at::kFloat);
  for (const LowRankPart& part : parts) {
    if (part.rows.magnitude < 0) continue;
    const at::Tensor norms = norms_F.narrow(0, part.first_output, part.num_outputs);
    const at::Tensor d_part = d_factors.narrow(0, part.first_output, part.num_outputs);
    add_vector(projection.weights->gradient({part.rows.magnitude, 1}),
               at::where(norms > 0, d_part / norms, 0));
  }
  // The norms count as constants (DoRA, part 4.3): one gradient through them costs a product more.
  return dy_NF * output_factors(*projection.weights, parts, norms_F).to(dy_NF.scalar_type());
}

}  // namespace

std::vector<LowRankPart> Projection::low_rank() const {
  return uses_adapter ? weights->low_rank(rows) : std::vector<LowRankPart>();
}

bool Projection::needs_input() const {
  return !weights->trained(rows).empty() || !low_rank().empty();
}

at::Tensor adapted_row_norms(const at::Tensor& w_FD, const at::Tensor& a_RD, const at::Tensor& b_FR,
                             double scale, Path path) {
  // |w + s b A|^2 = |w|^2 + 2 s (w A^T) b + s^2 b (A A^T) b: no matrix of the weights' size.
  const at::Tensor a = a_RD.to(at::kFloat), b = b_FR.to(at::kFloat);
  const at::Tensor own = at::linalg_vector_norm(w_FD, 2, 1, /*keepdim=*/false, at::kFloat).square();
  const at::Tensor mixed = product(w_FD, a_RD.t(), path).to(at::kFloat).mul_(b).sum(1);
  const at::Tensor low = at::mm(b, at::mm(a, a.t())).mul_(b).sum(1);
  return (own + 2 * scale * mixed + scale * scale * low).clamp_min_(0).sqrt_();
}

Projected project(const Projection& projection, const at::Tensor& x_ND) {
  const Weights& weights = *projection.weights;
  Weight weight = weights.matrix(projection.rows);
  const auto parts = projection.low_rank();
  // Norms of its rows need it once more.
  if (has_magnitudes(parts)) weight = {unpacked(weight)};
  Projected result{matmul(x_ND, weight, projection.path), {}};
  if (parts.empty()) return result;

  // Scaled here, while it is small: its gradient and that of B are then plain products.
  at::Tensor low =
      product(input_of_a(projection, x_ND), weights.weight(all_a(parts)).t(), projection.path);
  scale_parts(low, weights, parts);
  std::int64_t first = 0;
  for (const LowRankPart& part : parts) {
    const at::Tensor b_FR = weights.weight({part.rows.b, 1});
    at::Tensor y = columns(result.y_NF, part);
    product_add(y, low.narrow(1, first, b_FR.size(1)), b_FR.t(), projection.path);
    first += b_FR.size(1);
  }
  result.kept = {low};
  if (!has_magnitudes(parts)) return result;
  const at::Tensor norms = norms_of(weights, parts, weight.dense, projection.path);
  result.kept.push_back(result.y_NF);
  result.kept.push_back(norms);
  result.y_NF = result.y_NF * output_factors(weights, parts, norms).to(result.y_NF.scalar_type());
  return result;
}

at::Tensor project_backward(const Projection& projection, const at::Tensor& dy_NF,
                            const at::Tensor& x_ND, std::span<const at::Tensor> kept) {
  Weights& weights = *projection.weights;
  const Path path = projection.path;
  for (const TrainedPart& part : weights.trained(projection.rows))
    add_product(weights.gradient(part.rows), outputs(dy_NF, part), x_ND, path);
  const auto parts = projection.low_rank();
  if (parts.empty()) return matmul_backward(dy_NF, weights.matrix(projection.rows), path);

  const at::Tensor& low = kept[0];
  const at::Tensor dz_NF =
      kept.size() > 1 ? magnitude_backward(projection, parts, dy_NF, kept[1], kept[2]) : dy_NF;
  at::Tensor d_low = at::empty_like(low);
  std::int64_t first = 0;
  for (const LowRankPart& part : parts) {
    const at::Tensor b_FR = weights.weight({part.rows.b, 1});
    const at::Tensor dz = columns(dz_NF, part);
    add_product(weights.gradient({part.rows.b, 1}), dz, low.narrow(1, first, b_FR.size(1)), path);
    at::Tensor d_part = d_low.narrow(1, first, b_FR.size(1));
    product_out(d_part, dz, b_FR, path);
    first += b_FR.size(1);
  }
  scale_parts(d_low, weights, parts);
  add_product(weights.gradient(all_a(parts)), d_low, input_of_a(projection, x_ND), path);

  at::Tensor dx = matmul_backward(dz_NF, weights.matrix(projection.rows), path);
  const at::Tensor a_RD = weights.weight(all_a(parts));
  if (!projection.dropout) {
    product_add(dx, d_low, a_RD, path);
    return dx;
  }
  return dx.add_(
      dropout(product(d_low, a_RD, path), *projection.dropout, projection.rows.first, path));
}

}  // namespace finetune::model
