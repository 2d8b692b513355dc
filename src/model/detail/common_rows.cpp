// SPDX-License-Identifier: Apache-2.0
#include "model/detail/common_rows.hpp"

#include "model/products.hpp"

namespace finetune::model {
namespace {

/// Rows [first, first + count), and zeros behind them, in fresh memory.
at::Tensor with_zeros(const at::Tensor& rows, std::int64_t first, std::int64_t count,
                      std::int64_t common) {
  at::Tensor more = at::empty({common, rows.size(1)}, rows.options());
  more.narrow(0, 0, count).copy_(rows.narrow(0, first, count));
  more.narrow(0, count, common - count).zero_();
  return more;
}

}  // namespace

std::int64_t common_row_count(std::int64_t count, const at::Tensor& rows, Path path) {
  const bool is_narrow = rows.scalar_type() == at::kBFloat16 || rows.scalar_type() == at::kHalf;
  if (!rows.is_cpu() || !is_narrow || is_widened(rows, path) || expects_few_rows()) return count;
  return common_row_count(count);
}

void product_of_common_rows(const at::Tensor& out, const at::Tensor& in, std::int64_t first,
                            std::int64_t count, std::int64_t common,
                            const std::function<void(at::Tensor&, const at::Tensor&)>& product) {
  if (first + common <= in.size(0)) {
    at::Tensor of_out = out.narrow(0, first, common);
    product(of_out, in.narrow(0, first, common));
    return;
  }
  at::Tensor of_out = at::empty({common, out.size(1)}, out.options());
  product(of_out, with_zeros(in, first, count, common));
  out.narrow(0, first, count).copy_(of_out.narrow(0, 0, count));
}

CommonRows common_rows(at::Tensor& a, const at::Tensor& b, std::int64_t first, std::int64_t count,
                       std::int64_t common) {
  if (first + common > a.size(0))
    return {with_zeros(a, first, count, common), with_zeros(b, first, count, common)};
  if (common > count) a.narrow(0, first + count, common - count).zero_();
  return {a.narrow(0, first, common), b.narrow(0, first, common)};
}

}  // namespace finetune::model
