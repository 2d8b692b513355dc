// SPDX-License-Identifier: Apache-2.0
#include "adapters/ia3/math.hpp"

#include <algorithm>

#include "adapters/ia3/parts.hpp"
#include "model/adapter_math.hpp"
#include "model/gradients.hpp"
#include "model/weight.hpp"

namespace finetune::adapters::ia3 {
namespace {

using model::AdaptedPart;
using model::Projected;
using model::Projection;

bool are_of_inputs(const AdaptedPart& part) {
  return Factors::are_of_inputs(*part.adapted);
}

/// [1, out] or [1, in].
at::Tensor factors(const Projection& projection, const AdaptedPart& part) {
  return projection.weights->weight({Factors::row(*part.adapted), 1}).view({1, -1});
}

/// The gradient of factors of `z`, where `dy` is that of their product.
void add_gradient(const Projection& projection, const AdaptedPart& part, const at::Tensor& dy,
                  const at::Tensor& z) {
  model::add_vector(projection.weights->gradient({Factors::row(*part.adapted), 1}),
                    at::mul(dy, z).sum(0, /*keepdim=*/false, at::kFloat));
}

/// The same product of one of the rows.
Projection of_row(const Projection& projection, int row) {
  Projection one = projection;
  one.rows = {row, 1};
  return one;
}

std::int64_t num_outputs(const Projection& projection, int row) {
  return model::num_outputs(projection.weights->matrix({row, 1}));
}

/// Rows of a range whose inputs differ are read one by one. Calls
/// visit(projection of the row, its parts, first output, number of outputs).
template <typename Visit>
void for_each_row(const Projection& projection, const std::vector<AdaptedPart>& parts,
                  const Visit& visit) {
  std::int64_t first = 0;
  for (int row = projection.rows.first; row < projection.rows.first + projection.rows.num; ++row) {
    std::vector<AdaptedPart> own;
    for (AdaptedPart part : parts) {
      if (part.row != row) continue;
      part.first_output = 0;
      own.push_back(part);
    }
    const std::int64_t num = num_outputs(projection, row);
    visit(of_row(projection, row), own, first, num);
    first += num;
  }
}

/// y = f * (x W^T), or (f * x) W^T. What is kept: the products that outputs' factors scale.
class FactorMath final : public model::AdapterMath {
 public:
  bool needs_input(const std::vector<AdaptedPart>& parts) const override {
    return std::ranges::any_of(parts, are_of_inputs);
  }

  Projected project(const Projection& projection, const std::vector<AdaptedPart>& parts,
                    const at::Tensor& x_ND) const override {
    if (projection.rows.num == 1 || !needs_input(parts))
      return project_together(projection, parts, x_ND);
    Projected all;
    std::vector<at::Tensor> outputs;
    for_each_row(projection, parts,
                 [&](const Projection& row, const std::vector<AdaptedPart>& own, std::int64_t,
                     std::int64_t) {
                   Projected one = project_together(row, own, x_ND);
                   outputs.push_back(one.y_NF);
                   all.kept.insert(all.kept.end(), one.kept.begin(), one.kept.end());
                 });
    all.y_NF = at::cat(outputs, 1);
    return all;
  }

  void project_backward(const Projection& projection, const std::vector<AdaptedPart>& parts,
                        const at::Tensor& dy_NF, model::InputTravel& ends,
                        std::span<const at::Tensor> kept) const override {
    const bool scales_input = needs_input(parts);
    const at::Tensor x_ND = scales_input ? ends.input() : at::Tensor();
    if (projection.rows.num == 1 || !scales_input)
      return ends.give_gradient(backward_together(projection, parts, dy_NF, x_ND, kept));
    at::Tensor dx;
    for_each_row(projection, parts,
                 [&](const Projection& row, const std::vector<AdaptedPart>& own, std::int64_t first,
                     std::int64_t num) {
                   const at::Tensor one = backward_together(
                       row, own, dy_NF.narrow(1, first, num).contiguous(), x_ND, kept);
                   const auto used = std::ranges::count_if(
                       own, [](const AdaptedPart& part) { return !are_of_inputs(part); });
                   kept = kept.subspan(static_cast<std::size_t>(used));
                   dx = dx.defined() ? dx.add_(one) : one;
                 });
    ends.give_gradient(dx);
  }

  at::Tensor bias(const Projection& projection, const std::vector<AdaptedPart>& parts,
                  const at::Tensor& bias_F) const override {
    at::Tensor scaled = bias_F.clone();
    for (const AdaptedPart& part : parts)
      scaled.narrow(0, part.first_output, part.num_outputs)
          .mul_(factors(projection, part).flatten());
    return scaled;
  }

  void bias_backward(const Projection& projection, const std::vector<AdaptedPart>& parts,
                     const at::Tensor& dy_NF) const override {
    const at::Tensor bias_F = projection.weights->weight(projection.rows);
    for (const AdaptedPart& part : parts) {
      const at::Tensor d_bias = model::outputs(dy_NF, part).sum(0, /*keepdim=*/false, at::kFloat);
      model::add_vector(
          projection.weights->gradient({Factors::row(*part.adapted), 1}),
          d_bias * bias_F.narrow(0, part.first_output, part.num_outputs).to(at::kFloat));
    }
  }

  void merge(const model::Adapted& adapted, const ReadPart& part,
             at::Tensor& values) const override {
    const at::Tensor factors = part(adapted.parts.size() - 1);
    values.mul_(values.dim() == 1 ? factors.flatten() : factors);
  }

 private:
  /// One product: of one row, or of rows that all read x as it is.
  Projected project_together(const Projection& projection, const std::vector<AdaptedPart>& parts,
                             const at::Tensor& x_ND) const {
    const bool scales_input = needs_input(parts);
    const at::Tensor input =
        scales_input ? at::mul(x_ND, factors(projection, parts.front())) : x_ND;
    Projected result{
        model::matmul(input, projection.weights->matrix(projection.rows), projection.path), {}};
    if (scales_input) return result;
    for (const AdaptedPart& part : parts) {
      at::Tensor outputs = model::outputs(result.y_NF, part);
      result.kept.push_back(outputs.clone(at::MemoryFormat::Contiguous));
      outputs.mul_(factors(projection, part));
    }
    return result;
  }

  at::Tensor backward_together(const Projection& projection, const std::vector<AdaptedPart>& parts,
                               const at::Tensor& dy_NF, const at::Tensor& x_ND,
                               std::span<const at::Tensor> kept) const {
    const model::Weight weight = projection.weights->matrix(projection.rows);
    if (needs_input(parts)) {
      at::Tensor dx = model::matmul_backward(dy_NF, weight, projection.path);
      add_gradient(projection, parts.front(), dx, x_ND);
      return dx.mul_(factors(projection, parts.front()));
    }
    if (parts.empty()) return model::matmul_backward(dy_NF, weight, projection.path);
    for (std::size_t i = 0; i < parts.size(); ++i)
      add_gradient(projection, parts[i], model::outputs(dy_NF, parts[i]), kept[i]);
    at::Tensor dz_NF = dy_NF.clone();
    for (const AdaptedPart& part : parts)
      model::outputs(dz_NF, part).mul_(factors(projection, part));
    return model::matmul_backward(dz_NF, weight, projection.path);
  }
};

}  // namespace

const model::AdapterMath& math() {
  static const FactorMath factors;
  return factors;
}

}  // namespace finetune::adapters::ia3
