// SPDX-License-Identifier: Apache-2.0
#include "kernels/mxfp4.hpp"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <bit>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "kernels/composed_packed.hpp"
#include "kernels/element.hpp"

namespace finetune::kernels::mxfp4_test {
namespace {

TEST(Mxfp4, HasTheLevelsOfTheFormatLowerHalvesFirst) {
  // The codes 0 to 15 twice, with factors 1/4 and 2^3.
  std::vector<std::uint8_t> codes;
  for (int twice = 0; twice < 4; ++twice)
    for (std::uint8_t code = 0; code < 16; code += 2)
      codes.push_back(static_cast<std::uint8_t>(code | (code + 1) << 4));
  const std::vector<std::uint8_t> exponents = {125, 130};
  std::vector<float> out(64);
  mxfp4_dequantize<float>(codes, exponents, out);
  const float levels[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float scale = i < 32 ? 0.25f : 8.0f;
    EXPECT_EQ(out[i], (i % 16 < 8 ? 1 : -1) * levels[i % 8] * scale) << i;
  }
  EXPECT_TRUE(std::signbit(out[8])) << "a zero has its sign";
}

TEST(Mxfp4, HasFiniteNumbersUpToTheLargestExponent) {
  EXPECT_TRUE(std::isfinite(6 * mxfp4_scale(largest_mxfp4_exponent)));
  EXPECT_FALSE(std::isfinite(6 * mxfp4_scale(largest_mxfp4_exponent + 1)));
  EXPECT_EQ(mxfp4_scale(0), std::ldexp(1.0f, -127));
}

template <typename T>
class Mxfp4Of : public testing::Test {};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(Mxfp4Of, Types);

TYPED_TEST(Mxfp4Of, IsTheCompositionToTheBit) {
  constexpr std::int64_t blocks = 3000;  // more than one piece of the threads' work
  const auto dtype = sizeof(TypeParam) == 4 ? at::kFloat : at::kBFloat16;
  const at::Tensor i = at::arange(blocks * 16, at::kLong);
  const at::Tensor codes = (i * 7919 + i.div(251, "floor")).remainder(256).to(at::kByte);
  const at::Tensor exponents = (at::arange(blocks, at::kLong) * 31).remainder(253).to(at::kByte);
  const at::Tensor expected = at::empty({blocks * 32}, dtype), got = at::empty_like(expected);
  composed::mxfp4_dequantize_(expected, codes, exponents);
  mxfp4_dequantize<TypeParam>({codes.const_data_ptr<std::uint8_t>(), blocks * 16},
                              {exponents.const_data_ptr<std::uint8_t>(), blocks},
                              {static_cast<TypeParam*>(got.data_ptr()), blocks * 32});
  EXPECT_TRUE(at::equal(got, expected));
  EXPECT_GT(got.abs().max().item<float>(), 1e30);
}

TEST(Mxfp4, RefusesOtherSizes) {
  const std::vector<std::uint8_t> codes(16), exponents(2);
  std::vector<float> out(32);
  EXPECT_THROW(mxfp4_dequantize<float>(codes, exponents, out), core::Error);
}

}  // namespace
}  // namespace finetune::kernels::mxfp4_test
