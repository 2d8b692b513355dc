// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/elementwise.hpp"

#include <limits>

#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::elementwise_test {
namespace {

TEST(Convert, RoundsAsTorchDoes) {
  at::Tensor source = normal<float>({1003}, 1);
  const float infinity = std::numeric_limits<float>::infinity();
  source.narrow(0, 0, 6).copy_(at::tensor({0.0f, -0.0f, infinity, -infinity, 3.4e38f, 1e-40f}));
  const at::Tensor target = at::empty({1003}, at::kBFloat16);
  convert(elements<float>(source), elements<bf16>(target));
  EXPECT_TRUE(same_bits(target, source.to(at::kBFloat16)));
}

TEST(Convert, TiesGoToTheEvenNeighbour) {
  const std::vector<float> ties{1.0f + 1.0f / 256, 1.0f + 3.0f / 256};
  std::vector<bf16> rounded(2);
  convert(ties, rounded);
  EXPECT_EQ(rounded[0], 0x3F80);
  EXPECT_EQ(rounded[1], 0x3F82);
}

TEST(Convert, NaNWithAnyPayloadStaysNaN) {
  const std::vector<std::uint32_t> bits{0x7F800001u, 0xFFFFFFFFu};
  const std::span<const float> source(reinterpret_cast<const float*>(bits.data()), 2);
  std::vector<bf16> target(2);
  convert(source, target);
  for (const bf16 value : target)
    EXPECT_GT(value & 0x7FFFu, 0x7F80u);
}

TEST(Convert, EveryBf16ComesBack) {
  std::vector<bf16> all(0x10000), back(0x10000);
  std::vector<float> wide(0x10000);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<bf16>(i);
  convert(all, wide);
  convert(wide, back);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool is_nan = (i & 0x7FFFu) > 0x7F80u;
    EXPECT_EQ(back[i], is_nan ? 0x7FC0 : all[i]);
  }
}

TEST(Accumulate, AddsInFp32) {
  const at::Tensor narrow = normal<bf16>({1003}, 1), wide = normal<float>({1003}, 2);
  const at::Tensor target = normal<float>({1003}, 3);
  const at::Tensor expected = target + narrow.to(at::kFloat);
  accumulate(elements<bf16>(narrow), elements<float>(target));
  EXPECT_TRUE(same_bits(target, expected));
  accumulate(elements<float>(wide), elements<float>(target));
  EXPECT_TRUE(same_bits(target, expected + wide));
}

TEST(Scale, MultipliesInPlace) {
  const at::Tensor wide = normal<float>({1003}, 1), narrow = normal<bf16>({1003}, 2);
  const at::Tensor expected_wide = wide * 0.3f, expected_narrow = narrow * 0.3f;
  scale(elements<float>(wide), 0.3f);
  scale(elements<bf16>(narrow), 0.3f);
  EXPECT_TRUE(same_bits(wide, expected_wide));
  EXPECT_TRUE(same_bits(narrow, expected_narrow));
}

TEST(Add, EqualsTorch) {
  const at::Tensor a = normal<bf16>({1003}, 1), b = normal<bf16>({1003}, 2);
  const at::Tensor expected = a + b;
  add(elements<bf16>(a), elements<bf16>(b), elements<bf16>(a));
  EXPECT_TRUE(same_bits(a, expected));
}

TEST(Add, HasTheSameBitsForAnyThreadCount) {
  const at::Tensor a = normal<float>({50001}, 1), b = normal<float>({50001}, 2);
  expect_same_bits_for_any_thread_count([&] {
    const at::Tensor sum = at::empty_like(a);
    add(elements<float>(a), elements<float>(b), elements<float>(sum));
    return sum;
  });
}

TEST(Elementwise, SizesAreChecked) {
  std::vector<float> three(3), four(4);
  EXPECT_ANY_THROW(add(three, three, four));
  EXPECT_ANY_THROW(accumulate(std::span<const float>(four), three));
}

}  // namespace
}  // namespace finetune::kernels::test::elementwise_test
