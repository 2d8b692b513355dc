// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/reduce.hpp"

#include <limits>

#include "kernels/composed.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::reduce_test {
namespace {

template <class T>
class Reduce : public ::testing::Test {};
TYPED_TEST_SUITE(Reduce, ActivationTypes);

TYPED_TEST(Reduce, SumsSquaresOfAnyCount) {
  for (const std::int64_t count : {0, 1, 7, 4095, 4096, 4097, 20000}) {
    const at::Tensor values = normal<TypeParam>({count}, 1);
    const double expected = composed::squared_sum(values).template item<double>();
    EXPECT_NEAR(squared_sum<TypeParam>(elements<TypeParam>(values)), expected, 1e-13 * expected);
  }
}

TYPED_TEST(Reduce, SumsSquaresThatFp32CannotHold) {
  const at::Tensor values = at::full({5}, 1e30, scalar_type<TypeParam>());
  const double value = values[0].template item<double>();
  EXPECT_NEAR(squared_sum<TypeParam>(elements<TypeParam>(values)) / (5 * value * value), 1, 1e-14);
}

TYPED_TEST(Reduce, SquaredSumHasTheSameBitsForAnyThreadCount) {
  const at::Tensor values = normal<TypeParam>({100003}, 1);
  expect_same_bits_for_any_thread_count([&] {
    const double sum = squared_sum<TypeParam>(elements<TypeParam>(values));
    return at::scalar_tensor(sum, at::kDouble).view({1}).view(at::kInt);
  });
}

TYPED_TEST(Reduce, FindsTheOneValueThatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::int64_t place : {0, 4096, 20000}) {
      at::Tensor values = normal<TypeParam>({20001}, 1);
      EXPECT_TRUE(all_finite<TypeParam>(elements<TypeParam>(values)));
      values[place] = bad;
      EXPECT_FALSE(all_finite<TypeParam>(elements<TypeParam>(values)));
    }
  }
}

TEST(AllFinite, LargestNumberIsFinite) {
  const std::vector<float> values{std::numeric_limits<float>::max(),
                                  std::numeric_limits<float>::lowest(),
                                  std::numeric_limits<float>::denorm_min()};
  EXPECT_TRUE(all_finite<float>(values));
  EXPECT_TRUE(all_finite<float>({}));
}

}  // namespace
}  // namespace finetune::kernels::test::reduce_test
