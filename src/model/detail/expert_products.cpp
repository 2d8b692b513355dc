// SPDX-License-Identifier: Apache-2.0
#include "model/detail/expert_products.hpp"

#include <numeric>
#include <vector>

#include "model/adapter_math.hpp"
#include "model/detail/common_rows.hpp"
#include "model/detail/fp8_grouped_products.hpp"
#include "model/detail/grouped_products.hpp"
#include "model/detail/unpack.hpp"

namespace finetune::model {
namespace {

/// Calls f(index of the expert, its first row, its rows) for each that has any, in their order.
template <typename F>
void for_each_expert(const RowCounts& rows, const F& f) {
  const std::vector<std::int64_t>& counts = rows.on_host();
  std::int64_t first = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) f(static_cast<std::int64_t>(i), first, counts[i]);
    first += counts[i];
  }
}

/// The same from the last one on: whoever is called may write to rows behind its expert's.
template <typename F>
void for_each_expert_backwards(const RowCounts& rows, const F& f) {
  const std::vector<std::int64_t>& counts = rows.on_host();
  std::int64_t end = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  for (std::size_t i = counts.size(); i-- > 0;) {
    end -= counts[i];
    if (counts[i] > 0) f(static_cast<std::int64_t>(i), end, counts[i]);
  }
}

/// Calls f(index of the expert, its rows of a, its rows of b) for each that has any.
template <typename F>
void for_each_expert(const RowCounts& rows, const at::Tensor& a, const at::Tensor& b, const F& f) {
  for_each_expert(rows, [&](std::int64_t i, std::int64_t first, std::int64_t count) {
    f(i, a.narrow(0, first, count), b.narrow(0, first, count));
  });
}

/// Products in 8 bits have scales of what they multiply, and no kernel of their own for each shape.
std::int64_t common_row_count(std::int64_t count, const at::Tensor& rows,
                              const std::optional<Fp8Recipe>& fp8, Path path) {
  return fp8 ? count : common_row_count(count, rows, path);
}

/// Of all experts of a layer, each of which can be unpacked by itself.
bool is_mxfp4(const Weight& all) {
  return !all.packed.empty() && all.packed.front().row->packing.kind == Packing::Kind::mxfp4;
}

}  // namespace

RowSeries ExpertProducts::series(Projection projection) const {
  RowRange rows = projection == Projection::gate_up ? rows_.gate_up : RowRange{rows_.down, 1};
  rows.first += static_cast<int>(held_.first) * rows_.stride;
  return {rows, rows_.stride, held_.count()};
}

/// However the file keeps them.
Weight ExpertProducts::matrices(Projection projection) const {
  if (held_.count() == 0) return {};
  if (is_fused()) {
    Weight all = weights_.matrix(series(projection).first);
    if (!may_group_ && is_mxfp4(all)) return all;
    const at::Tensor dense = unpacked(all);
    return {.dense = rows_.are_by_outputs ? dense : dense.transpose(1, 2)};
  }
  return may_group_ ? weights_.series(series(projection)) : Weight();
}

Weight ExpertProducts::matrix(const Weight& all, Projection projection, std::int64_t i) const {
  if (is_fused() && is_mxfp4(all)) return {unpack_expert(all.packed.front(), i, all.compute)};
  if (is_fused()) return {.dense = all.dense.select(0, i)};
  return weights_.matrix(series(projection).at(i));
}

bool ExpertProducts::takes_together(const at::Tensor& rows, const Weight& all) const {
  if (!may_group_) return false;
  if (all.fp8) return all.quantised && takes_grouped(rows, all.quantised->values);
  return all.dense.defined() && takes_grouped(rows, all.dense);
}

at::Tensor ExpertProducts::product(const at::Tensor& x, Projection projection,
                                   std::int64_t num_outputs) const {
  at::Tensor y = product_alone(x, projection, num_outputs);
  if (biases(projection) >= 0) add_biases(y, projection);
  if (const Adapted* parts = adapted(projection); parts != nullptr)
    parts->math->project_experts(weights_, *parts, of_rows(), x, y);
  return y;
}

const Adapted* ExpertProducts::adapted(Projection projection) const {
  if (!uses_adapter_ || held_.count() == 0) return nullptr;
  const std::vector<AdaptedPart> parts = weights_.adapted(series(projection).first);
  return parts.empty() ? nullptr : parts.front().adapted;
}

/// int64 [M].
at::Tensor ExpertProducts::experts_of_rows(std::int64_t num_rows) const {
  const at::Tensor row = at::arange(num_rows, counts_.ends().options());
  return at::searchsorted(counts_.ends(), row, /*out_int32=*/false, /*right=*/true);
}

at::Tensor ExpertProducts::dots_with_biases(const at::Tensor& dy, Projection projection) const {
  if (biases(projection) < 0) return {};
  at::Tensor dots = at::zeros({dy.size(0)}, dy.options().dtype(at::kFloat));
  if (held_.count() == 0) return dots;
  const at::Tensor biases_ED = weights_.weight({biases(projection), 1});
  if (may_group_) {
    const at::Tensor expert = experts_of_rows(dy.size(0)).unsqueeze(1);
    return dots.add_(at::matmul(dy, biases_ED.t()).gather(1, expert).squeeze(1));
  }
  for_each_expert(counts_, dots, dy, [&](std::int64_t i, at::Tensor of_dots, const at::Tensor& of) {
    of_dots.add_(at::mv(of, biases_ED.select(0, i)));
  });
  return dots;
}

/// Where all experts are computed together nobody waits for the counts here either.
void ExpertProducts::add_biases(const at::Tensor& y, Projection projection) const {
  if (held_.count() == 0) return;
  const at::Tensor biases_EF = weights_.weight({biases(projection), 1});
  if (may_group_) {
    y.add_(biases_EF.index_select(0, experts_of_rows(y.size(0))));
    return;
  }
  for_each_expert(counts_, y, y, [&](std::int64_t i, const at::Tensor& of_y, const at::Tensor&) {
    of_y.add_(biases_EF.select(0, i));
  });
}

at::Tensor ExpertProducts::product_alone(const at::Tensor& x, Projection projection,
                                         std::int64_t num_outputs) const {
  const Weight all = matrices(projection);
  if (takes_together(x, all)) {
    if (all.fp8) return fp8_grouped_product(x, *all.quantised, counts_.ends(), *all.fp8);
    return grouped_product(x, all.dense.transpose(1, 2), counts_.ends());
  }
  at::Tensor y = at::empty({x.size(0), num_outputs}, x.options());
  for_each_expert(counts_, [&](std::int64_t i, std::int64_t first, std::int64_t count) {
    const Weight weight = matrix(all, projection, i);
    const std::int64_t common = common_row_count(count, x, weight.fp8, path_);
    product_of_common_rows(
        y, x, first, count, common,
        [&](at::Tensor& of_y, const at::Tensor& of_x) { matmul_out(of_y, of_x, weight, path_); });
  });
  return y;
}

at::Tensor ExpertProducts::backward(const at::Tensor& dy, Projection projection,
                                    std::int64_t num_inputs) const {
  at::Tensor dx = backward_alone(dy, projection, num_inputs);
  if (const Adapted* parts = adapted(projection); parts != nullptr)
    parts->math->pull_back_experts(weights_, *parts, of_rows(), dy, dx);
  return dx;
}

at::Tensor ExpertProducts::backward_alone(const at::Tensor& dy, Projection projection,
                                          std::int64_t num_inputs) const {
  const Weight all = matrices(projection);
  if (takes_together(dy, all)) {
    if (all.fp8) return fp8_grouped_product_backward(dy, *all.quantised, counts_.ends(), *all.fp8);
    return grouped_product(dy, all.dense, counts_.ends());
  }
  at::Tensor dx = at::empty({dy.size(0), num_inputs}, dy.options());
  for_each_expert(counts_, [&](std::int64_t i, std::int64_t first, std::int64_t count) {
    const Weight weight = matrix(all, projection, i);
    const std::int64_t common = common_row_count(count, dy, weight.fp8, path_);
    product_of_common_rows(dx, dy, first, count, common,
                           [&](at::Tensor& of_dx, const at::Tensor& of_dy) {
                             matmul_backward_out(of_dx, of_dy, weight, path_);
                           });
  });
  return dx;
}

bool ExpertProducts::groups_gradients(const at::Tensor& dy, const at::Tensor& x,
                                      Projection projection) const {
  if (!may_group_ || !takes_grouped_outer(dy, x, held_.count())) return false;
  if (is_fused()) return true;
  const RowSeries of = series(projection);
  const std::optional<Fp8Recipe> fp8 = weights_.series(of).fp8;
  return weights_.has_series_gradient(of) && !(fp8 && fp8->weight_gradients);
}

void ExpertProducts::add_gradients(at::Tensor& dy, const at::Tensor& x,
                                   Projection projection) const {
  if (biases(projection) >= 0) add_bias_gradients(dy, projection);
  if (const Adapted* parts = adapted(projection); parts != nullptr)
    parts->math->add_expert_gradients(weights_, *parts, of_rows(), dy, x);
  add_matrix_gradients(dy, x, projection);
}

void ExpertProducts::add_bias_gradients(const at::Tensor& dy, Projection projection) const {
  const RowRange row{biases(projection), 1};
  if (dy.size(0) == 0 || weights_.trained(row).empty()) return;
  const GradientSlot slot = weights_.gradient(row);
  if (!slot.tensor.defined()) return;
  at::Tensor all = slot.tensor;
  constexpr std::int64_t least_columns = 8;  // of what the grouped product takes
  if (may_group_ && takes_grouped_outer(dy, dy.narrow(1, 0, least_columns), held_.count())) {
    const at::Tensor ones = at::ones({dy.size(0), least_columns}, dy.options());
    const at::Tensor sums = grouped_outer_product(ones, dy, counts_.ends()).select(1, 0);
    slot.accumulate ? all.add_(sums) : all.copy_(sums);
    return;
  }
  if (!slot.accumulate) all.zero_();
  for_each_expert(counts_, dy, dy, [&](std::int64_t i, const at::Tensor& of_dy, const at::Tensor&) {
    all.select(0, i).add_(of_dy.sum(0, /*keepdim=*/false, at::kFloat));
  });
}

void ExpertProducts::add_matrix_gradients(at::Tensor& dy, const at::Tensor& x,
                                          Projection projection) const {
  // Frozen: nobody is to wait for counts.
  if (dy.size(0) == 0 || weights_.trained(series(projection).first).empty()) return;
  if (groups_gradients(dy, x, projection)) return add_grouped(dy, x, projection);
  if (is_fused()) return add_fused(dy, x, projection);
  for_each_expert_backwards(counts_, [&](std::int64_t i, std::int64_t first, std::int64_t count) {
    const RowRange rows = series(projection).at(i);
    const std::optional<Fp8Recipe> fp8 = weights_.matrix(rows).fp8;
    const auto [of_dy, of_x] =
        common_rows(dy, x, first, count, common_row_count(count, x, fp8, path_));
    add_product(weights_.gradient(rows), of_dy, of_x, path_, fp8);
  });
}

/// The kernel writes nowhere but into fresh memory.
void ExpertProducts::add_grouped(const at::Tensor& dy, const at::Tensor& x,
                                 Projection projection) const {
  const RowSeries of = series(projection);
  const GradientSlot slot = is_fused() ? weights_.gradient(of.first) : weights_.series_gradient(of);
  if (!slot.tensor.defined()) return;
  at::Tensor target = slot.tensor;
  const at::Tensor gradient = is_by_inputs() ? grouped_outer_product(x, dy, counts_.ends())
                                             : grouped_outer_product(dy, x, counts_.ends());
  if (slot.accumulate) {
    target.add_(gradient);
  } else {
    target.copy_(gradient);
  }
}

void ExpertProducts::add_fused(at::Tensor& dy, const at::Tensor& x, Projection projection) const {
  const GradientSlot slot = weights_.gradient(series(projection).first);
  if (!slot.tensor.defined()) return;
  at::Tensor all = slot.tensor;
  // Experts that no token chose are written by nobody.
  if (!slot.accumulate) all.zero_();
  for_each_expert_backwards(counts_, [&](std::int64_t i, std::int64_t first, std::int64_t count) {
    const auto [of_dy, of_x] = common_rows(dy, x, first, count, common_row_count(count, x, path_));
    at::Tensor target = all.select(0, i);
    is_by_inputs() ? product_add(target, of_x.t(), of_dy, path_)
                   : product_add(target, of_dy.t(), of_x, path_);
  });
}

}  // namespace finetune::model
