// SPDX-License-Identifier: Apache-2.0
#include "kernels/noise.hpp"

#include <ATen/ATen.h>

#include "core/random.hpp"
#include "kernels/composed_noise.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::noise_test {
namespace {

constexpr std::uint64_t some_seed = 0x123456789ABCDEFULL;

template <class T>
at::Tensor with_noise(const at::Tensor& x, const at::Tensor& tokens, const at::Tensor& scales) {
  const at::Tensor out = x.clone();
  add_noise(Noise<T>{.x = elements<T>(out),
                     .tokens = elements<std::int64_t>(tokens),
                     .scales = elements<float>(scales),
                     .seed = some_seed});
  return out;
}

at::Tensor numbers(std::int64_t first, std::int64_t count) {
  return at::arange(first, first + count, at::kLong);
}

/// As noise.hpp says it.
float uniform(std::int64_t token, std::int64_t d) {
  const std::int64_t e = d % noise_tile;
  const auto block = static_cast<std::uint32_t>(d / noise_tile * noise_lanes + e % noise_lanes);
  const auto words = core::philox(
      {static_cast<std::uint32_t>(token), static_cast<std::uint32_t>(token >> 32), block, 0},
      {static_cast<std::uint32_t>(some_seed), static_cast<std::uint32_t>(some_seed >> 32) + 7});
  return static_cast<float>(words[static_cast<std::size_t>(e / noise_lanes)] >> 8) * 0x1p-23f - 1;
}

TEST(Noise, IsWhatPhiloxSays) {
  const std::int64_t first = (5LL << 32) + 9, dim = 300;  // two tiles and part of a third
  const at::Tensor out = with_noise<float>(at::zeros({2, dim}, at::kFloat), numbers(first, 2),
                                           at::tensor({1.0f, 0.5f}));
  for (std::int64_t row = 0; row < 2; ++row)
    for (std::int64_t d = 0; d < dim; ++d)
      ASSERT_EQ(out[row][d].item<float>(), uniform(first + row, d) * (row == 0 ? 1.0f : 0.5f));
}

TEST(Noise, IsUniformWithinItsScale) {
  const at::Tensor out = with_noise<float>(at::zeros({64, 512}, at::kFloat), numbers(0, 64),
                                           at::full({64}, 2.0f, at::kFloat));
  EXPECT_LE(out.abs().max().item<float>(), 2.0f);
  EXPECT_GT(out.max().item<float>(), 1.99f);
  EXPECT_LT(out.min().item<float>(), -1.99f);
  EXPECT_NEAR(out.mean().item<float>(), 0, 0.03);
  EXPECT_NEAR(out.std().item<float>(), 2 / std::sqrt(3.0), 0.02);
}

template <class T>
class NoiseOf : public ::testing::Test {};
TYPED_TEST_SUITE(NoiseOf, ActivationTypes);

TYPED_TEST(NoiseOf, HasTheBitsOfItsComposition) {
  for (const std::int64_t dim : {1, 32, 128, 300}) {
    const at::Tensor x = normal<TypeParam>({5, dim}, 1);
    const at::Tensor tokens = numbers((1LL << 40) + 3, 5);
    const at::Tensor scales = at::tensor({0.0f, 0.1f, 0.37f, 1.0f, 12.5f});
    at::Tensor composed = x.clone();
    composed::add_noise_(composed, tokens, scales, some_seed);
    EXPECT_TRUE(same_bits(with_noise<TypeParam>(x, tokens, scales), composed)) << dim;
    EXPECT_TRUE(same_bits(composed[0], x[0])) << "no noise of scale 0";
  }
}

}  // namespace
}  // namespace finetune::kernels::test::noise_test
