// SPDX-License-Identifier: Apache-2.0
// Rows that few products are made for, beside others.
#include "model/products.hpp"

#include <gtest/gtest.h>

namespace finetune::model::products_test {
namespace {

TEST(Products, OfTheFirstRowsAreThoseOfTheseAlone) {
  at::manual_seed(4);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor a = at::randn({40, 96}).to(dtype), w = at::randn({24, 96}).to(dtype);
    const Path path = path_for(dtype == at::kFloat ? core::DType::f32 : core::DType::bf16);
    at::Tensor alone, beside, of_another_size;
    {
      const FewRows all;
      alone = product(a.narrow(0, 0, 3), w.t(), path);
    }
    const at::Tensor others = product(a.narrow(0, 3, 37), w.t(), path);
    {
      const FewRows first(3, 40);
      beside = product(a, w.t(), path);
      of_another_size = product(a.narrow(0, 0, 39), w.t(), path);
    }
    EXPECT_TRUE(at::equal(beside.narrow(0, 0, 3), alone));
    EXPECT_TRUE(at::equal(beside.narrow(0, 3, 37), others));
    EXPECT_TRUE(at::equal(of_another_size, product(a.narrow(0, 0, 39), w.t(), path)));
    // Sums of 96 products, which bf16 rounds to 8 bits.
    const double bound = dtype == at::kFloat ? 1e-4 : 0.2;
    EXPECT_LT(
        (alone.to(at::kFloat) - at::mm(a.to(at::kFloat), w.to(at::kFloat).t()).narrow(0, 0, 3))
            .abs()
            .max()
            .item<double>(),
        bound);
  }
}

}  // namespace
}  // namespace finetune::model::products_test
