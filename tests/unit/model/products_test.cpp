// SPDX-License-Identifier: Apache-2.0
// Products of rows of several texts.
#include "model/products.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace finetune::model::products_test {
namespace {

TEST(Products, OfATextAreThoseOfThisTextAlone) {
  at::manual_seed(4);
  // Texts that go on, prompts, short ones between them, and more short ones than few.
  const std::vector<std::int64_t> of_texts = {1, 1, 1, 37, 2, 70, 1, 20, 20, 3};
  const std::int64_t total = std::accumulate(of_texts.begin(), of_texts.end(), std::int64_t{0});
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor a = at::randn({total, 96}).to(dtype), w = at::randn({24, 96}).to(dtype);
    const Path path = path_for(dtype == at::kFloat ? core::DType::f32 : core::DType::bf16);
    at::Tensor together, each, of_another_size;
    {
      const FewRows texts(of_texts);
      together = product(a, w.t(), path);
      of_another_size = product(a.narrow(0, 0, 39), w.t(), path);
    }
    EXPECT_TRUE(at::equal(of_another_size, product(a.narrow(0, 0, 39), w.t(), path)));
    std::int64_t begin = 0;
    for (const std::int64_t rows : of_texts) {
      const at::Tensor own = a.narrow(0, begin, rows);
      const FewRows alone(std::vector{rows});
      EXPECT_TRUE(at::equal(together.narrow(0, begin, rows), product(own, w.t(), path))) << begin;
      begin += rows;
    }
    {
      const FewRows all;
      each = product(a, w.t(), path);
      for (std::int64_t row = 0; row < total; row += 7)
        EXPECT_TRUE(at::equal(each.narrow(0, row, 1), product(a.narrow(0, row, 1), w.t(), path)));
    }
    // Sums of 96 products, which bf16 rounds to 8 bits.
    const double bound = dtype == at::kFloat ? 1e-4 : 0.2;
    const at::Tensor exact = at::mm(a.to(at::kFloat), w.to(at::kFloat).t());
    EXPECT_LT((together.to(at::kFloat) - exact).abs().max().item<double>(), bound);
    EXPECT_LT((each.to(at::kFloat) - exact).abs().max().item<double>(), bound);
  }
}

}  // namespace
}  // namespace finetune::model::products_test
