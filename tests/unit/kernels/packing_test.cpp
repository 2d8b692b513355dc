// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing.hpp"

#include <cmath>
#include <limits>

#include "core/dtype.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::packing_test {
namespace {

std::vector<f16> every_f16() {
  std::vector<f16> all(0x10000);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i].bits = static_cast<std::uint16_t>(i);
  return all;
}

bool is_nan(f16 value) {
  return (value.bits & 0x7FFFu) > 0x7C00u;
}

TEST(Packing, EveryF16IsWidenedExactly) {
  const std::vector<f16> all = every_f16();
  std::vector<float> wide(all.size());
  widen<f16>(all, wide);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (is_nan(all[i])) {
      EXPECT_TRUE(std::isnan(wide[i]));
    } else {
      EXPECT_EQ(core::f16_to_float(all[i].bits), wide[i]);
      EXPECT_EQ(std::signbit(wide[i]), (i & 0x8000u) != 0);
    }
  }
}

TEST(Packing, RoundsToF16AsCoreDoes) {
  // Each half and what lies a quarter, two quarters (a tie) and three quarters above it.
  std::vector<float> values;
  for (const f16 half : every_f16()) {
    if (is_nan(half)) continue;
    const float low = core::f16_to_float(half.bits);
    const auto next = static_cast<std::uint16_t>(half.bits + 1);
    const float step = (half.bits & 0x7FFFu) < 0x7BFFu ? core::f16_to_float(next) - low : 0.0f;
    for (const float quarter : {0.0f, 0.25f, 0.5f, 0.75f})
      values.push_back(low + quarter * step);
  }
  for (const float value : {65519.0f, 65520.0f, 65536.0f, 1e38f, 1e-40f, 0x1p-25f, 0x1.1p-25f}) {
    values.push_back(value);
    values.push_back(-value);
  }
  std::vector<f16> halves(values.size());
  narrow<float, f16>(values, halves);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(halves[i].bits, core::float_to_f16(values[i])) << values[i];
}

TEST(Packing, NaNStaysNaN) {
  const std::vector<float> values{std::nanf(""), -std::nanf("1")};
  std::vector<f16> halves(2);
  narrow<float, f16>(values, halves);
  for (const f16 half : halves)
    EXPECT_TRUE(is_nan(half));
}

TEST(Packing, NarrowsAsTorchDoes) {
  const at::Tensor wide = normal<float>({1003}, 1), brain = normal<bf16>({1003}, 2);
  const at::Tensor to_brain = at::empty({1003}, at::kBFloat16);
  const at::Tensor to_half = at::empty({1003}, at::kHalf), to_wide = at::empty({1003}, at::kFloat);
  narrow<float, bf16>(elements<float>(wide), elements<bf16>(to_brain));
  EXPECT_TRUE(same_bits(to_brain, wide.to(at::kBFloat16)));
  narrow<bf16, f16>(elements<bf16>(brain), elements<f16>(to_half));
  EXPECT_TRUE(same_bits(to_half, brain.to(at::kHalf)));
  narrow<bf16, float>(elements<bf16>(brain), elements<float>(to_wide));
  EXPECT_TRUE(same_bits(to_wide, brain.to(at::kFloat)));
}

template <class T>
void expect_sum(at::ScalarType type) {
  const at::Tensor sum = normal<float>({1003}, 1), terms = normal<float>({1003}, 2).to(type);
  const at::Tensor expected = sum + terms.to(at::kFloat);
  add<T>(elements<T>(terms), elements<float>(sum));
  EXPECT_TRUE(same_bits(sum, expected));
}

TEST(Packing, AddsInFp32) {
  expect_sum<float>(at::kFloat);
  expect_sum<bf16>(at::kBFloat16);
  expect_sum<f16>(at::kHalf);
}

TEST(Packing, RefusesSpansOfDifferentSizes) {
  const std::vector<float> values(3);
  std::vector<bf16> target(2);
  EXPECT_ANY_THROW((narrow<float, bf16>(values, target)));
}

TEST(Packing, AStartedSumIsThatOfZerosAndTerms) {
  const std::vector<float> values{1.5f, -0.0f, 0.0f, -2.25f, 0x1p-130f};
  std::vector<bf16> terms(values.size());
  narrow<float, bf16>(values, terms);
  std::vector<float> added(values.size()), started(values.size(), 7.0f);
  add<bf16>(terms, added);
  start_sum<bf16>(terms, started);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(added[i], started[i]);
    EXPECT_EQ(std::signbit(added[i]), std::signbit(started[i])) << values[i];
  }
}

}  // namespace
}  // namespace finetune::kernels::test::packing_test
