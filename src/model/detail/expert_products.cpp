// SPDX-License-Identifier: Apache-2.0
#include "model/detail/expert_products.hpp"

namespace finetune::model {
namespace {

/// Calls f(index of the expert, its rows of a, its rows of b) for each that has any.
template <typename F>
void for_each_expert(std::span<const std::int64_t> counts, const at::Tensor& a, const at::Tensor& b,
                     const F& f) {
  std::int64_t first = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::int64_t count = counts[i];
    if (count > 0)
      f(static_cast<std::int64_t>(i), a.narrow(0, first, count), b.narrow(0, first, count));
    first += count;
  }
}

}  // namespace

RowRange ExpertProducts::rows_of(Projection projection, std::int64_t i) const {
  RowRange rows = projection == Projection::gate_up ? rows_.gate_up : RowRange{rows_.down, 1};
  rows.first += static_cast<int>(held_.first + i) * rows_.stride;
  return rows;
}

/// As [out, in], however the file keeps it.
Weight ExpertProducts::matrix(Projection projection, std::int64_t i) const {
  if (!is_fused()) return weights_.matrix(rows_of(projection, i));
  return {weights_.weight(rows_of(projection, i)).select(0, i).t()};
}

void ExpertProducts::product_out(at::Tensor& y, const at::Tensor& x, Projection projection) const {
  for_each_expert(counts_, y, x, [&](std::int64_t i, at::Tensor of_y, const at::Tensor& of_x) {
    matmul_out(of_y, of_x, matrix(projection, i), path_);
  });
}

void ExpertProducts::backward_out(at::Tensor& dx, const at::Tensor& dy,
                                  Projection projection) const {
  for_each_expert(counts_, dx, dy, [&](std::int64_t i, at::Tensor of_dx, const at::Tensor& of_dy) {
    matmul_backward_out(of_dx, of_dy, matrix(projection, i), path_);
  });
}

void ExpertProducts::add_gradients(const at::Tensor& dy, const at::Tensor& x,
                                   Projection projection) const {
  if (is_fused()) return add_fused(dy, x, projection);
  for_each_expert(counts_, dy, x,
                  [&](std::int64_t i, const at::Tensor& of_dy, const at::Tensor& of_x) {
                    add_product(weights_.gradient(rows_of(projection, i)), of_dy, of_x, path_);
                  });
}

void ExpertProducts::add_fused(const at::Tensor& dy, const at::Tensor& x,
                               Projection projection) const {
  if (dy.size(0) == 0) return;
  const GradientSlot slot = weights_.gradient(rows_of(projection, 0));
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
