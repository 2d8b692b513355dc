// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/math.hpp"

#include <algorithm>
#include <utility>

#include "adapters/lora/expert_math.hpp"
#include "adapters/lora/magnitudes.hpp"
#include "adapters/lora/parts.hpp"
#include "adapters/lora/starts.hpp"
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
/// B [F, r], whichever way round the part has it.
at::Tensor weight_b(const Weights& weights, const AdaptedPart& part) {
  if (part.adapted->of_transpose) return weights.weight({a_of(part), 1}).t();
  return weights.weight({b_of(part), 1});
}
void add_gradient_b(Weights& weights, const AdaptedPart& part, const at::Tensor& dz_NF,
                    const at::Tensor& low_NR, Path path) {
  if (part.adapted->of_transpose)
    return model::add_product(weights.gradient({a_of(part), 1}), low_NR, dz_NF, path);
  model::add_product(weights.gradient({b_of(part), 1}), dz_NF, low_NR, path);
}
/// Multiplies the columns of each part with its scale; all at once where they are equal.
void scale_parts(const at::Tensor& low_NR, const Weights& weights,
                 const std::vector<AdaptedPart>& parts) {
  const double first_scale = parts.front().adapted->scale;
  if (std::all_of(parts.begin(), parts.end(),
                  [&](const AdaptedPart& part) { return part.adapted->scale == first_scale; })) {
    low_NR.mul_(first_scale);
    return;
  }
  std::int64_t first = 0;
  for (const AdaptedPart& part : parts) {
    const std::int64_t rank = weight_b(weights, part).size(1);
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

/// [sum of ranks, D]. An embedding that is the head as well is the only matrix of its range.
at::Tensor weight_a(const Weights& weights, const std::vector<AdaptedPart>& parts) {
  if (parts.front().adapted->of_transpose) return weights.weight({b_of(parts.front()), 1}).t();
  return weights.weight(all_a(parts));
}
void add_gradient_a(Weights& weights, const std::vector<AdaptedPart>& parts,
                    const at::Tensor& d_low_NR, const at::Tensor& x_ND, Path path) {
  if (parts.front().adapted->of_transpose)
    return model::add_product(weights.gradient({b_of(parts.front()), 1}), x_ND, d_low_NR, path);
  model::add_product(weights.gradient(all_a(parts)), d_low_NR, x_ND, path);
}

bool have_starts(const std::vector<AdaptedPart>& parts) {
  return LowRank::has_start(*parts.front().adapted);
}
int start_b_of(const AdaptedPart& part) {
  return part.adapted->parts[LowRank::start_b];
}
/// As all_a.
RowRange all_start_a(const std::vector<AdaptedPart>& parts) {
  return {parts.front().adapted->parts[LowRank::start_a], static_cast<int>(parts.size())};
}

/// Takes off the product of all inputs with what A and B began with.
void take_starts_off(const Projection& projection, const std::vector<AdaptedPart>& parts,
                     const at::Tensor& x_ND, at::Tensor& y_NF) {
  const Weights& weights = *projection.weights;
  at::Tensor low =
      model::product(x_ND, weights.weight(all_start_a(parts)).t(), projection.path).neg_();
  scale_parts(low, weights, parts);
  std::int64_t first = 0;
  for (const AdaptedPart& part : parts) {
    const at::Tensor b_FR = weights.weight({start_b_of(part), 1});
    at::Tensor y = model::outputs(y_NF, part);
    model::product_add(y, low.narrow(1, first, b_FR.size(1)), b_FR.t(), projection.path);
    first += b_FR.size(1);
  }
}

/// The same of the gradient of the inputs.
void take_starts_off_gradient(const Projection& projection, const std::vector<AdaptedPart>& parts,
                              const at::Tensor& dz_NF, at::Tensor& dx_ND) {
  const Weights& weights = *projection.weights;
  const at::Tensor a_RD = weights.weight(all_start_a(parts));
  at::Tensor d_low = at::empty({dz_NF.size(0), a_RD.size(0)}, dz_NF.options());
  std::int64_t first = 0;
  for (const AdaptedPart& part : parts) {
    const at::Tensor b_FR = weights.weight({start_b_of(part), 1});
    at::Tensor d_part = d_low.narrow(1, first, b_FR.size(1));
    model::product_out(d_part, model::outputs(dz_NF, part), b_FR, projection.path);
    first += b_FR.size(1);
  }
  scale_parts(d_low.neg_(), weights, parts);
  model::product_add(dx_ND, d_low, a_RD, projection.path);
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
  void embed(const Projection& projection, const AdaptedPart& part, const at::Tensor& ids_N,
             at::Tensor& x_ND) const override;
  void embed_backward(const Projection& projection, const AdaptedPart& part,
                      const at::Tensor& ids_N, const at::Tensor& d_x_ND) const override;
  void project_experts(const Weights& weights, const model::Adapted& adapted,
                       const model::ExpertRowProducts& rows, const at::Tensor& x,
                       at::Tensor& y) const override {
    lora::project_experts(weights, adapted, rows, x, y);
  }
  void pull_back_experts(const Weights& weights, const model::Adapted& adapted,
                         const model::ExpertRowProducts& rows, const at::Tensor& dy,
                         at::Tensor& dx) const override {
    lora::pull_back_experts(weights, adapted, rows, dy, dx);
  }
  void add_expert_gradients(Weights& weights, const model::Adapted& adapted,
                            const model::ExpertRowProducts& rows, const at::Tensor& dy,
                            const at::Tensor& x) const override {
    lora::add_expert_gradients(weights, adapted, rows, dy, x);
  }
  std::vector<at::Tensor> begin(const model::Adapted& adapted, const at::Tensor& weight,
                                const std::vector<std::vector<std::int64_t>>& shapes,
                                std::uint64_t seed) const override {
    const auto [a, b] = factors_of(weight, shapes[LowRank::a].front(), adapted.scale,
                                   StartKind::of_code(adapted.start), seed);
    return {a, b, at::Tensor(), a, b};
  }
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
  at::Tensor low =
      model::product(input_of_a(projection, x_ND), weight_a(weights, parts).t(), projection.path);
  scale_parts(low, weights, parts);
  std::int64_t first = 0;
  for (const AdaptedPart& part : parts) {
    const at::Tensor b_FR = weight_b(weights, part);
    at::Tensor y = model::outputs(result.y_NF, part);
    model::product_add(y, low.narrow(1, first, b_FR.size(1)), b_FR.t(), projection.path);
    first += b_FR.size(1);
  }
  result.kept = {low};
  if (have_starts(parts)) take_starts_off(projection, parts, x_ND, result.y_NF);
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
    const at::Tensor b_FR = weight_b(weights, part);
    const at::Tensor dz = model::outputs(dz_NF, part);
    add_gradient_b(weights, part, dz, low.narrow(1, first, b_FR.size(1)), path);
    at::Tensor d_part = d_low.narrow(1, first, b_FR.size(1));
    model::product_out(d_part, dz, b_FR, path);
    first += b_FR.size(1);
  }
  scale_parts(d_low, weights, parts);

  at::Tensor dx = model::matmul_backward(dz_NF, weights.matrix(projection.rows), path);
  const at::Tensor a_RD = weight_a(weights, parts);
  if (projection.dropout) {
    dx.add_(dropped(projection, model::product(d_low, a_RD, path)));
  } else {
    model::product_add(dx, d_low, a_RD, path);
  }
  if (have_starts(parts)) take_starts_off_gradient(projection, parts, dz_NF, dx);
  ends.give_gradient(std::move(dx));
  add_gradient_a(weights, parts, d_low, input_of_a(projection, ends.input()), path);
}

/// scale A^T of each id: [N, r], as it lies in memory [r, N].
at::Tensor low_of_ids(const Weights& weights, const AdaptedPart& part, const at::Tensor& ids_N) {
  at::Tensor low_RN = at::index_select(weights.weight({a_of(part), 1}), 1, ids_N);
  return low_RN.mul_(part.adapted->scale).t();
}

/// PEFT drops nothing of an embedding's.
void LowRankMath::embed(const Projection& projection, const AdaptedPart& part,
                        const at::Tensor& ids_N, at::Tensor& x_ND) const {
  const Weights& weights = *projection.weights;
  const at::Tensor b_DR = weights.weight({b_of(part), 1});
  model::product_add(x_ND, low_of_ids(weights, part, ids_N), b_DR.t(), projection.path);
}

void LowRankMath::embed_backward(const Projection& projection, const AdaptedPart& part,
                                 const at::Tensor& ids_N, const at::Tensor& d_x_ND) const {
  Weights& weights = *projection.weights;
  const Path path = projection.path;
  const at::Tensor b_DR = weights.weight({b_of(part), 1});
  model::add_product(weights.gradient({b_of(part), 1}), d_x_ND, low_of_ids(weights, part, ids_N),
                     path);
  at::Tensor d_low = model::product(d_x_ND, b_DR, path);
  d_low.mul_(part.adapted->scale);
  // Tokens are added in their order to what lies row by row; A has a column each.
  const model::GradientSlot slot = weights.gradient({a_of(part), 1});
  at::Tensor d_a_VR = at::empty({slot.tensor.size(1), slot.tensor.size(0)}, slot.tensor.options());
  model::embedding_gradient(ids_N, d_low, d_a_VR, false, path);
  at::Tensor target = slot.tensor;
  if (slot.accumulate)
    target.add_(d_a_VR.t());
  else
    target.copy_(d_a_VR.t());
}

/// With a magnitude each row of the sum is scaled to have that norm, but for a row of zeros.
void LowRankMath::merge(const model::Adapted& adapted, const ReadPart& part,
                        at::Tensor& values) const {
  if (adapted.together.num > 0)
    return merge_experts(adapted, part(LowRank::a), part(LowRank::b), values);
  if (adapted.of_transpose) {
    values.addmm_(part(LowRank::a).t(), part(LowRank::b).t(), 1, adapted.scale);
    return;
  }
  values.addmm_(part(LowRank::b), part(LowRank::a), 1, adapted.scale);
  if (LowRank::has_start(adapted))
    values.addmm_(part(LowRank::start_b), part(LowRank::start_a), 1, -adapted.scale);
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
