// SPDX-License-Identifier: Apache-2.0
#include "model/detail/expert_products.hpp"

#include <vector>

#include "model/detail/fp8_grouped_products.hpp"
#include "model/detail/grouped_products.hpp"

namespace finetune::model {
namespace {

/// Calls f(index of the expert, its rows of a, its rows of b) for each that has any.
template <typename F>
void for_each_expert(const RowCounts& rows, const at::Tensor& a, const at::Tensor& b, const F& f) {
  const std::vector<std::int64_t>& counts = rows.on_host();
  std::int64_t first = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::int64_t count = counts[i];
    if (count > 0)
      f(static_cast<std::int64_t>(i), a.narrow(0, first, count), b.narrow(0, first, count));
    first += count;
  }
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
  if (is_fused()) return {.dense = weights_.weight(series(projection).first).transpose(1, 2)};
  return may_group_ ? weights_.series(series(projection)) : Weight();
}

Weight ExpertProducts::matrix(const Weight& all, Projection projection, std::int64_t i) const {
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
  const Weight all = matrices(projection);
  if (takes_together(x, all)) {
    if (all.fp8) return fp8_grouped_product(x, *all.quantised, counts_.ends(), *all.fp8);
    return grouped_product(x, all.dense.transpose(1, 2), counts_.ends());
  }
  at::Tensor y = at::empty({x.size(0), num_outputs}, x.options());
  for_each_expert(counts_, y, x, [&](std::int64_t i, at::Tensor of_y, const at::Tensor& of_x) {
    matmul_out(of_y, of_x, matrix(all, projection, i), path_);
  });
  return y;
}

at::Tensor ExpertProducts::backward(const at::Tensor& dy, Projection projection,
                                    std::int64_t num_inputs) const {
  const Weight all = matrices(projection);
  if (takes_together(dy, all)) {
    if (all.fp8) return fp8_grouped_product_backward(dy, *all.quantised, counts_.ends(), *all.fp8);
    return grouped_product(dy, all.dense, counts_.ends());
  }
  at::Tensor dx = at::empty({dy.size(0), num_inputs}, dy.options());
  for_each_expert(counts_, dx, dy, [&](std::int64_t i, at::Tensor of_dx, const at::Tensor& of_dy) {
    matmul_backward_out(of_dx, of_dy, matrix(all, projection, i), path_);
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

void ExpertProducts::add_gradients(const at::Tensor& dy, const at::Tensor& x,
                                   Projection projection) const {
  // Frozen: nobody is to wait for counts.
  if (dy.size(0) == 0 || weights_.trained(series(projection).first).empty()) return;
  if (groups_gradients(dy, x, projection)) return add_grouped(dy, x, projection);
  if (is_fused()) return add_fused(dy, x, projection);
  for_each_expert(
      counts_, dy, x, [&](std::int64_t i, const at::Tensor& of_dy, const at::Tensor& of_x) {
        const RowRange rows = series(projection).at(i);
        add_product(weights_.gradient(rows), of_dy, of_x, path_, weights_.matrix(rows).fp8);
      });
}

/// The kernel writes nowhere but into fresh memory.
void ExpertProducts::add_grouped(const at::Tensor& dy, const at::Tensor& x,
                                 Projection projection) const {
  const RowSeries of = series(projection);
  const GradientSlot slot = is_fused() ? weights_.gradient(of.first) : weights_.series_gradient(of);
  if (!slot.tensor.defined()) return;
  at::Tensor target = slot.tensor;
  const at::Tensor gradient = is_fused() ? grouped_outer_product(x, dy, counts_.ends())
                                         : grouped_outer_product(dy, x, counts_.ends());
  if (slot.accumulate) {
    target.add_(gradient);
  } else {
    target.copy_(gradient);
  }
}

void ExpertProducts::add_fused(const at::Tensor& dy, const at::Tensor& x,
                               Projection projection) const {
  const GradientSlot slot = weights_.gradient(series(projection).first);
  if (!slot.tensor.defined()) return;
  at::Tensor all = slot.tensor;
  // Experts that no token chose are written by nobody.
  if (!slot.accumulate) all.zero_();
  for_each_expert(counts_, dy, x,
                  [&](std::int64_t i, const at::Tensor& of_dy, const at::Tensor& of_x) {
                    at::Tensor target = all.select(0, i);
                    product_add(target, of_x.t(), of_dy, path_);
                  });
}

}  // namespace finetune::model
