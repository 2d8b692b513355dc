// SPDX-License-Identifier: Apache-2.0
#include "model/expert_row_products.hpp"

#include <vector>

#include "model/detail/grouped_products.hpp"
#include "model/products.hpp"

namespace finetune::model {
namespace {

/// Calls f(expert, first row, number of rows) for each that has any.
template <typename F>
void for_each_with_rows(const RowCounts& counts, const F& f) {
  std::int64_t first = 0, i = 0;
  for (const std::int64_t count : counts.on_host()) {
    if (count > 0) f(i, first, count);
    first += count;
    ++i;
  }
}

}  // namespace

at::Tensor ExpertRowProducts::product(const at::Tensor& x, const at::Tensor& w_EOI) const {
  if (may_group_ && takes_grouped(x, w_EOI))
    return grouped_product(x, w_EOI.transpose(1, 2), counts_.ends());
  at::Tensor y = at::empty({x.size(0), w_EOI.size(1)}, x.options());
  for_each_with_rows(counts_, [&](std::int64_t i, std::int64_t first, std::int64_t count) {
    at::Tensor of_y = y.narrow(0, first, count);
    product_out(of_y, x.narrow(0, first, count), w_EOI.select(0, i).t(), path_);
  });
  return y;
}

void ExpertRowProducts::add_product(at::Tensor& y, const at::Tensor& x,
                                    const at::Tensor& w_EOI) const {
  if (may_group_ && takes_grouped(x, w_EOI)) {
    y.add_(grouped_product(x, w_EOI.transpose(1, 2), counts_.ends()));
    return;
  }
  for_each_with_rows(counts_, [&](std::int64_t i, std::int64_t first, std::int64_t count) {
    at::Tensor of_y = y.narrow(0, first, count);
    product_add(of_y, x.narrow(0, first, count), w_EOI.select(0, i).t(), path_);
  });
}

at::Tensor ExpertRowProducts::outer_product(const at::Tensor& dy, const at::Tensor& x) const {
  const auto num = static_cast<std::int64_t>(counts_.num());
  if (may_group_ && dy.size(0) > 0 && takes_grouped_outer(dy, x, num))
    return grouped_outer_product(dy, x, counts_.ends());
  const at::Tensor all = at::zeros({num, dy.size(1), x.size(1)}, dy.options());
  for_each_with_rows(counts_, [&](std::int64_t i, std::int64_t first, std::int64_t count) {
    at::Tensor target = all.select(0, i);
    product_out(target, dy.narrow(0, first, count).t(), x.narrow(0, first, count), path_);
  });
  return all;
}

}  // namespace finetune::model
