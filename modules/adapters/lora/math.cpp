// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/math.hpp"

#include <algorithm>
#include <utility>

#include "adapters/lora/magnitudes.hpp"
#include "adapters/lora/parts.hpp"
#include "core/error.hpp"
#include "model/activations.hpp"
#include "model/adapter_math.hpp"
#include "model/gradients.hpp"
#include "model/products.hpp"

namespace finetune::adapters::lora {
namespace {

using model::AdaptedPart;
using model::Path;
using model::Projected;
using model::Projection;
using model::RowRange;
using model::Weight;
using model::Weights;

int a_of(const AdaptedPart& part) {
  return part.adapted->parts[LowRank::a];
}
int b_of(const AdaptedPart& part) {
  return part.adapted->parts[LowRank::b];
}
/// Multiplies the columns of each part with its scale; all at once where they are equal.
void scale_parts(at::Tensor& low_NR, const Weights& weights,
                 const std::vector<AdaptedPart>& parts) {
  const double first_scale = parts.front().adapted->scale;
  if (std::all_of(parts.begin(), parts.end(),
                  [&](const AdaptedPart& part) { return part.adapted->scale == first_scale; })) {
    low_NR.mul_(first_scale);
    return;
  }
  std::int64_t first = 0;
  for (const AdaptedPart& part : parts) {
    const std::int64_t rank = weights.weight({b_of(part), 1}).size(1);
    low_NR.narrow(1, first, rank).mul_(part.adapted->scale);
    first += rank;
  }
}

/// The A of all parts, which follow each other: one matrix [sum of ranks, D].
RowRange all_a(const std::vector<AdaptedPart>& parts) {
  const RowRange rows{a_of(parts.front()), static_cast<int>(parts.size())};
  core::check(a_of(parts.back()) == rows.first + rows.num - 1,
              "the A of matrices read as one follow each other");
  return rows;
}

/// Zeroes what is dropped of inputs, or of their gradients.
at::Tensor dropped(const Projection& projection, const at::Tensor& x_ND) {
  return model::dropout(x_ND, *projection.dropout, projection.rows.first, projection.path,
                        projection.first_channel);
}

at::Tensor input_of_a(const Projection& projection, const at::Tensor& x_ND) {
  return projection.dropout ? dropped(projection, x_ND) : x_ND;
}

/// y = x W^T + scale (x A^T) B^T, and with a magnitude each output is scaled so that the sum's row
/// of weights has that norm. What is kept: low [N, sum of ranks], and with magnitudes the sum
/// before they scale it [N, F] and the norms of its weights' rows [F] in fp32.
class LowRankMath final : public model::AdapterMath {
 public:
  bool needs_input(const std::vector<AdaptedPart>&) const override { return true; }
  Projected project(const Projection& projection, const std::vector<AdaptedPart>& parts,
                    const at::Tensor& x_ND) const override;
  void project_backward(const Projection& projection, const std::vector<AdaptedPart>& parts,
                        const at::Tensor& dy_NF, model::InputTravel& ends,
                        std::span<const at::Tensor> kept) const override;
  void merge(const model::Adapted& adapted, const ReadPart& part,
             at::Tensor& values) const override;
};

Projected LowRankMath::project(const Projection& projection, const std::vector<AdaptedPart>& parts,
                               const at::Tensor& x_ND) const {
  const Weights& weights = *projection.weights;
  Weight weight = weights.matrix(projection.rows);
  // Norms of its rows need it once more.
  const at::Tensor unpacked = has_magnitudes(parts) ? model::unpacked(weight) : at::Tensor();
  if (unpacked.defined() && !weight.quantised) weight = {.dense = unpacked, .fp8 = weight.fp8};
  Projected result{model::matmul(x_ND, weight, projection.path), {}};
  // Scaled here, while it is small: its gradient and that of B are then plain products.
  at::Tensor low = model::product(input_of_a(projection, x_ND), weights.weight(all_a(parts)).t(),
                                  projection.path);
  scale_parts(low, weights, parts);
  std::int64_t first = 0;
  for (const AdaptedPart& part : parts) {
    const at::Tensor b_FR = weights.weight({b_of(part), 1});
    at::Tensor y = model::outputs(result.y_NF, part);
    model::product_add(y, low.narrow(1, first, b_FR.size(1)), b_FR.t(), projection.path);
    first += b_FR.size(1);
  }
  result.kept = {low};
  if (!has_magnitudes(parts)) return result;
  const at::Tensor norms = row_norms(projection, parts, unpacked);
  result.kept.push_back(result.y_NF);
  result.kept.push_back(norms);
  result.y_NF = result.y_NF * output_factors(projection, parts, norms);
  return result;
}

void LowRankMath::project_backward(const Projection& projection,
                                   const std::vector<AdaptedPart>& parts, const at::Tensor& dy_NF,
                                   model::InputTravel& ends,
                                   std::span<const at::Tensor> kept) const {
  Weights& weights = *projection.weights;
  const Path path = projection.path;
  const at::Tensor& low = kept[0];
  const at::Tensor dz_NF =
      kept.size() > 1 ? magnitude_backward(projection, parts, dy_NF, kept[1], kept[2]) : dy_NF;
  at::Tensor d_low = at::empty_like(low);
  std::int64_t first = 0;
  for (const AdaptedPart& part : parts) {
    const at::Tensor b_FR = weights.weight({b_of(part), 1});
    const at::Tensor dz = model::outputs(dz_NF, part);
    model::add_product(weights.gradient({b_of(part), 1}), dz, low.narrow(1, first, b_FR.size(1)),
                       path);
    at::Tensor d_part = d_low.narrow(1, first, b_FR.size(1));
    model::product_out(d_part, dz, b_FR, path);
    first += b_FR.size(1);
  }
  scale_parts(d_low, weights, parts);

  at::Tensor dx = model::matmul_backward(dz_NF, weights.matrix(projection.rows), path);
  const at::Tensor a_RD = weights.weight(all_a(parts));
  if (projection.dropout) {
    dx.add_(dropped(projection, model::product(d_low, a_RD, path)));
  } else {
    model::product_add(dx, d_low, a_RD, path);
  }
  ends.give_gradient(std::move(dx));
  model::add_product(weights.gradient(all_a(parts)), d_low, input_of_a(projection, ends.input()),
                     path);
}

/// With a magnitude each row of the sum is scaled to have that norm, but for a row of zeros.
void LowRankMath::merge(const model::Adapted& adapted, const ReadPart& part,
                        at::Tensor& values) const {
  values.addmm_(part(LowRank::b), part(LowRank::a), 1, adapted.scale);
  if (!LowRank::has_magnitude(adapted)) return;
  const at::Tensor norms = at::linalg_vector_norm(values, 2, 1);
  const at::Tensor factors = at::where(norms > 0, part(LowRank::magnitude) / norms, 1);
  values.mul_(factors.unsqueeze(1));
}

}  // namespace

const model::AdapterMath& math() {
  static const LowRankMath low_rank;
  return low_rank;
}

}  // namespace finetune::adapters::lora
