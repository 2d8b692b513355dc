// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_codes.hpp"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "kernels/composed_packed.hpp"

namespace finetune::kernels::row_codes_test {
namespace {

TEST(RowIntegers, AreScaleTimesCodeLessZero) {
  // Two rows of two groups of four, in four bits.
  const std::vector<std::uint8_t> codes = {0x10, 0x32, 0x54, 0xF6, 0x00, 0x88, 0xFF, 0x0F};
  const std::vector<float> scales = {1, 0.5f, 2, 4};
  const std::vector<std::uint8_t> zeros = {0, 8, 15, 1};
  std::vector<float> out(16);
  RowIntegers args{
      .codes = codes, .scales = scales, .zeros = zeros, .columns = 8, .group = 4, .bits = 4};
  integers_dequantize<float>(args, out);
  EXPECT_EQ(out, (std::vector<float>{0, 1, 2, 3, -2, -1.5f, -1, 3.5f, -30, -30, -14, -14, 56, 56,
                                     56, -4}));
  args.zeros = {};
  integers_dequantize<float>(args, out);
  EXPECT_EQ(out[0], -8) << "half of the codes";
  EXPECT_EQ(out[15], -32);
}

TEST(RowIntegers, HaveEightBits) {
  const std::vector<std::uint8_t> codes = {0, 128, 129, 255};
  const std::vector<float> scales = {3};
  std::vector<float> out(4);
  integers_dequantize<float>(
      {.codes = codes, .scales = scales, .zeros = {}, .columns = 4, .group = 4, .bits = 8}, out);
  EXPECT_EQ(out, (std::vector<float>{-384, 0, 3, 381}));
}

TEST(Nvfp4, DividesTheScaleOfEachSixteen) {
  const std::vector<std::uint8_t> codes(16, 0xA1);        // 0.5, -1
  const std::vector<std::uint8_t> scales = {0x38, 0x44};  // 1, 3
  std::vector<float> out(32);
  nvfp4_dequantize<float>(codes, scales, 7.0f, out);
  for (std::size_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(out[i], (i % 2 == 0 ? 0.5f : -1.0f) * ((i < 16 ? 1.0f : 3.0f) / 7.0f)) << i;
}

at::Tensor pattern(std::vector<std::int64_t> shape, std::int64_t step, std::int64_t below) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape)
    count *= size;
  const at::Tensor i = at::arange(count, at::kLong);
  return (i * step + i.div(251, "floor")).remainder(below).to(at::kByte).view(shape);
}

std::span<const std::uint8_t> bytes_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(tensor.numel())};
}

std::span<const float> floats_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

template <typename T>
class RowCodesOf : public testing::Test {
 protected:
  static constexpr at::ScalarType dtype = sizeof(T) == 4 ? at::kFloat : at::kBFloat16;
  static std::span<T> target(const at::Tensor& out) {
    return {static_cast<T*>(out.data_ptr()), static_cast<std::size_t>(out.numel())};
  }
};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(RowCodesOf, Types);

TYPED_TEST(RowCodesOf, AreTheCompositionToTheBit) {
  constexpr std::int64_t rows = 70, columns = 960;
  for (const std::int64_t bits : {4, 8}) {
    for (const std::int64_t group : {std::int64_t{32}, columns}) {
      for (const bool has_zeros : {false, true}) {
        for (const float factor : {1.0f, 7.874015718698502e-3f}) {
          const at::Tensor codes = pattern({rows, columns * bits / 8}, 7919, 256);
          const at::Tensor scales = at::arange(rows * (columns / group), at::kFloat)
                                        .mul_(0.37f)
                                        .add_(0.011f)
                                        .view({rows, -1});
          const at::Tensor zeros =
              has_zeros ? pattern(scales.sizes().vec(), 31, 1 << bits) : at::Tensor();
          const at::Tensor expected = at::empty({rows, columns}, this->dtype),
                           got = at::empty_like(expected);
          composed::integers_dequantize_(expected, {codes, scales, zeros, bits, factor});
          integers_dequantize<TypeParam>(
              {.codes = bytes_of(codes),
               .scales = floats_of(scales),
               .zeros = has_zeros ? bytes_of(zeros) : std::span<const std::uint8_t>(),
               .columns = columns,
               .group = group,
               .bits = bits,
               .factor = factor},
              this->target(got));
          EXPECT_TRUE(at::equal(got, expected)) << bits << " bits, groups of " << group;
        }
      }
    }
  }
}

TYPED_TEST(RowCodesOf, AreTheCompositionOfNvfp4ToTheBit) {
  constexpr std::int64_t rows = 300, columns = 640;  // more than one piece of the threads' work
  const at::Tensor codes = pattern({rows, columns / 2}, 7919, 256);
  const at::Tensor scales = pattern({rows, columns / nvfp4_block}, 31, 0x7F);
  const at::Tensor divisor = at::full({1}, 1234.567f);
  const at::Tensor expected = at::empty({rows, columns}, this->dtype),
                   got = at::empty_like(expected);
  composed::nvfp4_dequantize_(expected, codes, scales, divisor);
  nvfp4_dequantize<TypeParam>(bytes_of(codes), bytes_of(scales), 1234.567f, this->target(got));
  EXPECT_TRUE(at::equal(got, expected));
}

TEST(RowCodes, RefuseSizesThatDoNotFit) {
  const std::vector<std::uint8_t> codes(8), three(3);
  const std::vector<float> scales(2);
  std::vector<float> out(8);
  const auto unpack = [&](RowIntegers args) { integers_dequantize<float>(args, out); };
  const RowIntegers fits{.codes = codes, .scales = scales, .zeros = {}, .columns = 4, .group = 4};
  EXPECT_NO_THROW(unpack(fits));
  for (const auto change : std::vector<void (*)(RowIntegers&)>{
           [](RowIntegers& args) { args.bits = 3; }, [](RowIntegers& args) { args.bits = 4; },
           [](RowIntegers& args) { args.columns = 3; }, [](RowIntegers& args) { args.group = 3; },
           [](RowIntegers& args) { args.group = 2; }}) {
    RowIntegers args = fits;
    change(args);
    EXPECT_THROW(unpack(args), core::Error);
  }
  RowIntegers args = fits;
  args.zeros = three;
  EXPECT_THROW(unpack(args), core::Error);
  EXPECT_THROW(nvfp4_dequantize<float>(codes, three, 1, out), core::Error);
}

}  // namespace
}  // namespace finetune::kernels::row_codes_test
