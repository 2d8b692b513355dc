// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/magnitudes.hpp"

#include <algorithm>

#include "adapters/lora/parts.hpp"
#include "model/adapter_math.hpp"
#include "model/gradients.hpp"
#include "model/magnitudes.hpp"
#include "model/products.hpp"

namespace finetune::adapters::lora {
namespace {

using model::AdaptedPart;
using model::Path;
using model::Projection;

bool has_magnitude(const AdaptedPart& part) {
  return LowRank::has_magnitude(*part.adapted);
}

model::RowRange row_of(const AdaptedPart& part, std::size_t which) {
  return {part.adapted->parts[which], 1};
}

/// Writes the squared norms of a part's rows, of this rank's inputs.
void write_row_squares(const at::Tensor& w_FD, const at::Tensor& a_RD, const at::Tensor& b_FR,
                       double scale, Path path, const at::Tensor& squares_F) {
  // No matrix of the weights' size: |w + s b A|^2 = |w|^2 + 2 s (w A^T) b + s^2 b (A A^T) b.
  const at::Tensor a = a_RD.to(at::kFloat);
  const at::Tensor low_FR = at::mm(b_FR.to(at::kFloat), at::mm(a, a.t()));
  const at::Tensor mixed_FR = model::product(w_FD, a_RD.t(), path);
  model::adapted_row_squares_out(squares_F, {w_FD, mixed_FR, b_FR, low_FR, scale}, path);
}

/// [F]: ones, unless every output has a part with a magnitude, which writes them.
at::Tensor ones_beside(const std::vector<AdaptedPart>& parts, std::int64_t num_outputs,
                       const at::TensorOptions& options) {
  std::int64_t written = 0;
  for (const AdaptedPart& part : parts)
    written += has_magnitude(part) ? part.num_outputs : 0;
  return written == num_outputs ? at::empty({num_outputs}, options)
                                : at::ones({num_outputs}, options);
}

/// Of all parts; each part's gradient goes to `add(part, d_magnitude)` if d_factors is defined.
template <typename Add>
at::Tensor factors_of(const Projection& projection, const std::vector<AdaptedPart>& parts,
                      const at::Tensor& norms_F, const at::Tensor& d_factors, const Add& add) {
  const model::Weights& weights = *projection.weights;
  const auto dtype = weights.weight(row_of(parts.front(), LowRank::b)).scalar_type();
  at::Tensor factors = ones_beside(parts, norms_F.size(0), norms_F.options().dtype(dtype));
  const at::Tensor d_magnitudes = d_factors.defined() ? at::empty_like(d_factors) : d_factors;
  for (const AdaptedPart& part : parts) {
    if (!has_magnitude(part)) continue;
    const auto own = [&](const at::Tensor& all) {
      return all.defined() ? all.narrow(0, part.first_output, part.num_outputs) : all;
    };
    model::row_factors_out(own(factors), own(norms_F),
                           weights.weight(row_of(part, LowRank::magnitude)), projection.path,
                           own(d_factors), own(d_magnitudes));
    if (d_factors.defined()) add(part, own(d_magnitudes));
  }
  return factors;
}

}  // namespace

bool has_magnitudes(const std::vector<AdaptedPart>& parts) {
  return std::any_of(parts.begin(), parts.end(), has_magnitude);
}

at::Tensor row_norms(const Projection& projection, const std::vector<AdaptedPart>& parts,
                     const at::Tensor& w_FD) {
  const model::Weights& weights = *projection.weights;
  at::Tensor squares =
      ones_beside(parts, w_FD.size(0), at::TensorOptions(at::kFloat).device(w_FD.device()));
  for (const AdaptedPart& part : parts) {
    const auto own = [&](const at::Tensor& all) {
      return all.narrow(0, part.first_output, part.num_outputs);
    };
    write_row_squares(own(w_FD), weights.weight(row_of(part, LowRank::a)),
                      weights.weight(row_of(part, LowRank::b)), part.adapted->scale,
                      projection.path, own(squares));
  }
  // Ranks that share the inputs have a part of every row each.
  if (projection.travels == model::Travels::outputs) squares = projection.travel->sum(squares);
  return squares.clamp_min_(0).sqrt_();
}

at::Tensor output_factors(const Projection& projection, const std::vector<AdaptedPart>& parts,
                          const at::Tensor& norms_F) {
  return factors_of(projection, parts, norms_F, {}, [](const AdaptedPart&, const at::Tensor&) {});
}

at::Tensor magnitude_backward(const Projection& projection, const std::vector<AdaptedPart>& parts,
                              const at::Tensor& dy_NF, const at::Tensor& z_NF,
                              const at::Tensor& norms_F) {
  const at::Tensor d_factors = at::mul(dy_NF, z_NF).sum(0, /*keepdim=*/false, at::kFloat);
  const at::Tensor factors = factors_of(
      projection, parts, norms_F, d_factors, [&](const AdaptedPart& part, const at::Tensor& d) {
        model::add_vector(projection.weights->gradient(row_of(part, LowRank::magnitude)), d);
      });
  // The norms count as constants (DoRA, part 4.3): one gradient through them costs a product more.
  return dy_NF * factors;
}

}  // namespace finetune::adapters::lora
