// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/tiled_product.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/one_thread.hpp"
#include "support/threads.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::tiled_product_test {
namespace {

struct Shape {
  std::int64_t m, k, n;
};
/// Within one tile, and with tiles of 9 rows or columns, whose products MKL 2024.2 rounds otherwise
/// for two threads than for one.
const std::vector<Shape> shapes = {
    {1, 3, 2}, {9, 64, 41}, {521, 40, 33}, {33, 40, 521}, {521, 40, 1033}};

TEST(TiledProduct, IsTheSameBitsOnAnyThreads) {
  for (const Shape& of : shapes) {
    const at::Tensor a = test::normal<float>({of.m, of.k}, 1);
    const at::Tensor b = test::normal<float>({of.k, of.n}, 2);
    const at::Tensor c = test::normal<float>({of.m, of.n}, 3);
    tests::expect_same_on_any_threads([&] {
      return std::vector<at::Tensor>{tiled_mm(a, b), tiled_addmm(c, a, b, -4.5, 2.25)};
    });
  }
}

TEST(TiledProduct, IsTheProduct) {
  for (const Shape& of : shapes) {
    const at::Tensor a = test::normal<float>({of.m, of.k}, 1);
    const at::Tensor b = test::normal<float>({of.n, of.k}, 2).t();
    const at::Tensor c = test::normal<float>({of.m, of.n}, 3);
    const at::Tensor product = at::mm(a.to(at::kDouble), b.to(at::kDouble));
    // k roundings of sums no larger than that of the magnitudes, and those of scaling.
    const at::Tensor bound = (at::mm(a.abs(), b.abs()) * (of.k + 3) * 2.25 + c.abs() * 4.5) *
                             std::numeric_limits<float>::epsilon();
    const auto expect_near = [&](const at::Tensor& actual, const at::Tensor& expected) {
      EXPECT_TRUE(((actual - expected).abs() <= bound).all().item<bool>())
          << of.m << " " << of.k << " " << of.n;
    };
    expect_near(tiled_mm(a, b), product);
    expect_near(tiled_addmm(c, a, b, -4.5, 2.25), c.to(at::kDouble) * -4.5 + product * 2.25);
  }
}

/// As a step of an optimizer may be, on whichever thread.
TEST(TiledProduct, IsComputedInAnyModeOfAutograd) {
  const at::Tensor a = test::normal<float>({521, 5}, 1), b = test::normal<float>({5, 521}, 2);
  const at::Tensor expected = tiled_mm(a, b);
  const c10::InferenceMode inference;
  EXPECT_TRUE(tests::same_floats(tiled_mm(a, b), expected));
}

TEST(OneThread, EndsWithTheNumberBefore) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  {
    const OneThread one;
    EXPECT_EQ(at::get_num_threads(), 1);
  }
  EXPECT_EQ(at::get_num_threads(), 3);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace finetune::kernels::tiled_product_test
