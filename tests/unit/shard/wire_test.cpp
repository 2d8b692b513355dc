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

}  // namespace
}  // namespace finetune::shard::wire_test
