// SPDX-License-Identifier: Apache-2.0
#include "shard/wire.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace finetune::shard::wire_test {
namespace {

TEST(FindBad, NamesTheFirstElementThatFixedPointCannotHold) {
  for (const float bad : {NAN, std::numeric_limits<float>::infinity(), -8.0f, 8.0f}) {
    at::Tensor gradient = at::zeros({7}, at::kFloat);
    gradient[3].fill_(bad);
    gradient[5].fill_(9.0f);
    const FirstBad found = find_bad(gradient, gradient.to(at::kDouble).mul_(16), 8.0 * 16);
    EXPECT_FALSE(found.is_good.item<bool>());
    EXPECT_EQ(found.element.item<std::int64_t>(), 3);
    const auto value = found.value.item<float>();
    EXPECT_TRUE(value == bad || (std::isnan(value) && std::isnan(bad))) << value;
  }
}

TEST(FindBad, FindsNothingBelowTheLimit) {
  const at::Tensor gradient = at::full({7}, -7.5f, at::TensorOptions().dtype(at::kBFloat16));
  EXPECT_TRUE(find_bad(gradient, gradient.to(at::kDouble), 8.0).is_good.item<bool>());
}

TEST(AddToSums, TheFirstTermsCountWhatTheSumsHoldAsZeros) {
  const at::Tensor terms = at::tensor({1.5f, -0.25f, 3.0f}).to(at::kBFloat16);
  for (const bool is_fixed : {false, true}) {
    plan::Numbers numbers;
    if (is_fixed) numbers.determinism = plan::Determinism::topology;
    const auto dtype = numbers.is_fixed_point() ? at::kLong : at::kFloat;
    at::Tensor sum = at::full({3}, 99, at::TensorOptions(dtype));
    EXPECT_EQ(add(terms, numbers, 8.0, /*is_first=*/true, sum), -1);
    const at::Tensor once = sum.clone();
    EXPECT_EQ(add(terms, numbers, 8.0, /*is_first=*/false, sum), -1);
    EXPECT_TRUE(at::equal(sum, once * 2));
    const double unit = is_fixed ? std::ldexp(1.0, -fixed_point_bits) : 1;
    EXPECT_TRUE(at::equal(once.to(at::kDouble) * unit, terms.to(at::kDouble)));
  }
}

TEST(AddToSums, TheFirstTermThatDoesNotFitIsFound) {
  plan::Numbers numbers;
  numbers.determinism = plan::Determinism::topology;
  at::Tensor sum = at::zeros({3}, at::kLong);
  EXPECT_EQ(add(at::tensor({1.0f, 9.0f, NAN}), numbers, 8.0, /*is_first=*/true, sum), 1);
}

}  // namespace
}  // namespace finetune::shard::wire_test
