// SPDX-License-Identifier: Apache-2.0
// Products of as many rows as experts have, computed as products of few different shapes.
#include "model/detail/common_rows.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "model/products.hpp"
#include "support/weights.hpp"

namespace finetune::model::common_rows_test {
namespace {

using tests::normal;

constexpr std::int64_t inputs = 40, outputs = 24;

at::Tensor narrow_rows(std::int64_t count, std::int64_t columns, std::uint64_t seed) {
  return normal({count, columns}, seed).to(at::kBFloat16);
}

TEST(CommonRows, AreOfFewNumbersNotFarAboveTheirOwn) {
  const at::Tensor rows = narrow_rows(1, inputs, 1);
  constexpr std::int64_t most = 4096;
  std::set<std::int64_t> numbers;
  for (std::int64_t count = 1; count <= most; ++count) {
    const std::int64_t common = common_row_count(count, rows, Path::kernels);
    EXPECT_GE(common, count);
    EXPECT_LE(common * 8, count * 9);
    if (count <= 16) {
      EXPECT_EQ(common, count);
    }
    numbers.insert(common);
  }
  // 16, then 8 up to each of the powers of two from 32 to 512, then 16.
  EXPECT_EQ(numbers.size(), 16 + 5 * 8 + 3 * 16);
}

TEST(CommonRows, AreTheirOwnWhereNoKernelIsCompiledForThem) {
  constexpr std::int64_t count = 517;
  const at::Tensor rows = narrow_rows(1, inputs, 1);
  EXPECT_EQ(common_row_count(count, rows, Path::widened), count);
  EXPECT_EQ(common_row_count(count, rows.to(at::kFloat), Path::kernels), count);
  const FewRows texts;
  EXPECT_EQ(common_row_count(count, rows, Path::kernels), count);
}

/// Of rows [first, first + count), and what is written behind them by those that come next.
at::Tensor products(const at::Tensor& x, const at::Tensor& w, Path path,
                    const std::vector<std::int64_t>& counts) {
  at::Tensor y = at::zeros({x.size(0), w.size(0)}, x.options());
  std::int64_t first = 0;
  for (const std::int64_t count : counts) {
    product_of_common_rows(
        y, x, first, count, common_row_count(count, x, Path::kernels),
        [&](at::Tensor& out, const at::Tensor& in) { product_out(out, in, w.t(), path); });
    first += count;
  }
  return y;
}

TEST(CommonRows, OfAnExpertHaveTheSameProductsWhoeverComesBehind) {
  const std::vector<std::int64_t> counts = {37, 2, 130, 19, 67};
  const at::Tensor x = narrow_rows(255, inputs, 1), w = narrow_rows(outputs, inputs, 2);
  const Path path = path_for(core::DType::bf16);
  const at::Tensor together = products(x, w, path, counts);
  std::int64_t first = 0;
  for (const std::int64_t count : counts) {
    const at::Tensor own = x.narrow(0, first, count), of_own = together.narrow(0, first, count);
    EXPECT_TRUE(at::equal(of_own, products(own, w, path, {count}))) << count;
    const at::Tensor exact = at::mm(own.to(at::kFloat), w.to(at::kFloat).t());
    EXPECT_TRUE(at::allclose(of_own.to(at::kFloat), exact, 1e-2, 1e-2)) << count;
    first += count;
  }
}

TEST(CommonRows, OfOthersAddNothingToAGradient) {
  const std::vector<std::int64_t> counts = {37, 2, 130, 19, 67};
  const Path path = path_for(core::DType::bf16);
  const at::Tensor all_dy = narrow_rows(255, outputs, 1), x = narrow_rows(255, inputs, 2);
  at::Tensor dy = all_dy.clone();
  std::int64_t end = 255;
  // From the last one on, as whoever comes behind is overwritten.
  for (std::size_t i = counts.size(); i-- > 0;) {
    const std::int64_t count = counts[i], first = end -= count;
    const std::int64_t common = common_row_count(count, x, Path::kernels);
    const auto of_all = common_rows(dy, x, first, count, common);
    EXPECT_EQ(of_all.a.size(0), common);
    EXPECT_EQ(of_all.b.size(0), common);
    at::Tensor own_dy = all_dy.narrow(0, first, count);
    const at::Tensor own_x = x.narrow(0, first, count);
    const auto alone = common_rows(own_dy, own_x, 0, count, common);
    const at::Tensor gradient = product(of_all.a.t(), of_all.b, path);
    EXPECT_TRUE(at::equal(gradient, product(alone.a.t(), alone.b, path))) << count;
    const at::Tensor exact = at::mm(own_dy.to(at::kFloat).t(), own_x.to(at::kFloat));
    EXPECT_TRUE(at::allclose(gradient.to(at::kFloat), exact, 1e-2, 1e-2)) << count;
  }
  EXPECT_EQ(end, 0);
}

}  // namespace
}  // namespace finetune::model::common_rows_test
