// SPDX-License-Identifier: Apache-2.0
// Operands of 8 bits: how they are rounded, and what products make of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "model/fp8_products.hpp"
#include "model/ops.hpp"
#include "support/weights.hpp"

namespace finetune::model::fp8_test {
namespace {

using tests::normal;
using tests::TinyWeights;

/// An 8-bit format, from its definition: sign, exponent, and what is behind the point.
struct Format {
  const char* name;
  at::ScalarType dtype;
  int mantissa_bits;
  int bias;
  double largest;
  Fp8Gradients gradients;

  /// All finite magnitudes, smallest first.
  std::vector<double> magnitudes() const {
    std::vector<double> all;
    for (int bits = 0; bits < 128; ++bits) {
      const int exponent = bits >> mantissa_bits, behind = bits & ((1 << mantissa_bits) - 1);
      const double one = exponent == 0 ? 0 : 1;
      const double value =
          std::ldexp(one + std::ldexp(behind, -mantissa_bits), std::max(exponent, 1) - bias);
      if (value <= largest) all.push_back(value);
    }
    return all;
  }

  /// The nearest, and of two the one whose last bit is 0; what is too large is the largest.
  double nearest(double value) const {
    const std::vector<double> all = magnitudes();
    const double wanted = std::min(std::abs(value), largest);
    const auto above = std::ranges::lower_bound(all, wanted);
    auto best = above;
    if (above != all.begin()) {
      const auto below = above - 1;
      const double up = *above - wanted, down = wanted - *below;
      const bool is_odd = (above - all.begin()) % 2 == 1;
      if (down < up || (down == up && is_odd)) best = below;
    }
    return std::copysign(*best, value);
  }
};

constexpr Format e4m3{"e4m3", at::kFloat8_e4m3fn, 3, 7, 448, Fp8Gradients::e4m3};
constexpr Format e5m2{"e5m2", at::kFloat8_e5m2, 2, 15, 57344, Fp8Gradients::e5m2};

/// The smallest power of two by which a magnitude fits.
double scale_for(double magnitude, const Format& format) {
  double scale = std::ldexp(1.0, -100);
  while (magnitude / scale > format.largest)
    scale *= 2;
  return scale;
}

std::vector<float> values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kFloat).contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

/// Every element, by the definition.
void expect_rounded(const Quantised& made, const at::Tensor& x, const Format& format,
                    std::int64_t rows, std::int64_t columns) {
  const std::vector<float> in = values_of(x), out = values_of(dequantised(made, at::kFloat));
  const std::vector<float> scales = values_of(made.scales);
  const std::int64_t width = x.size(1);
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    for (std::int64_t j = 0; j < width; ++j) {
      double largest = 0;
      for (std::int64_t a = i / rows * rows; a < (i / rows + 1) * rows; ++a)
        for (std::int64_t b = j / columns * columns; b < (j / columns + 1) * columns; ++b)
          largest = std::max(largest, std::abs(static_cast<double>(in[a * width + b])));
      const double scale = scale_for(largest, format);
      const double value = in[i * width + j];
      ASSERT_EQ(out[i * width + j], scale * format.nearest(value / scale))
          << value << " at " << i << ", " << j << " with scale " << scale;
      ASSERT_EQ(scales[i / rows * (width / columns) + j / columns], scale);
    }
  }
}

class EightBits : public testing::TestWithParam<Format> {};

TEST_P(EightBits, KeepEachOfTheirOwnValues) {
  const Format& format = GetParam();
  std::vector<float> all;
  for (const double magnitude : format.magnitudes()) {
    all.push_back(static_cast<float>(magnitude));
    all.push_back(static_cast<float>(-magnitude));
  }
  const at::Tensor x = at::tensor(all).unsqueeze(0);
  const Quantised made = quantise(x, format.dtype, {});
  EXPECT_EQ(made.scales.item<float>(), 1);
  EXPECT_EQ(values_of(made.values), all);
}

TEST_P(EightBits, AreTheNearestToWhatLiesBetween) {
  const Format& format = GetParam();
  const std::vector<double> all = format.magnitudes();
  std::vector<float> between = {static_cast<float>(format.largest)};
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    const auto middle = static_cast<float>((all[i] + all[i + 1]) / 2);
    for (const float value : {middle, std::nextafter(middle, 0.0f),
                              std::nextafter(middle, std::numeric_limits<float>::max())})
      between.insert(between.end(), {value, -value});
  }
  const at::Tensor x = at::tensor(between).unsqueeze(0);
  expect_rounded(quantise(x, format.dtype, {}), x, format, 1, x.size(1));
}

TEST_P(EightBits, HaveTheSmallestPowerOfTwoThatFits) {
  const Format& format = GetParam();
  std::vector<float> largest;
  for (const int power : {-125, -100, -20, -1, 0, 1, 30, 110})
    for (const float part : {1.0f, 1.25f, 1.75f, std::nextafter(1.75f, 2.0f), 1.99f})
      largest.push_back(std::ldexp(part, power));
  const at::Tensor x = at::tensor(largest).unsqueeze(1) * at::tensor({1.0f, -0.3f, 0.01f});
  expect_rounded(quantise(x, format.dtype, {}), x, format, 1, 3);
}

TEST_P(EightBits, AreScaledByRowsAndBlocks) {
  const Format& format = GetParam();
  at::Tensor x = normal({256, 256}, 7);
  x *= at::exp(4 * normal({256, 1}, 8));
  for (const at::Tensor& of : {x, x.t(), x.to(at::kBFloat16)}) {
    expect_rounded(quantise(of, format.dtype, {}), of, format, 1, 256);
    expect_rounded(quantise(of, format.dtype, {1, 128}), of, format, 1, 128);
  }
  const at::Tensor part = x.narrow(0, 0, 128);
  expect_rounded(quantise(part, format.dtype, {128, 128}), part, format, 128, 128);
}

TEST_P(EightBits, OfZerosAreZeros) {
  const Quantised made = quantise(at::zeros({2, 16}), GetParam().dtype, {});
  EXPECT_TRUE(dequantised(made, at::kFloat).eq(0).all().item<bool>());
  EXPECT_EQ(quantise(at::zeros({0, 16}), GetParam().dtype, {}).values.size(0), 0);
}

TEST_P(EightBits, AreNoNumbersWhereOneOfTheirTileIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    at::Tensor x = at::ones({3, 16});
    x[1][5] = bad;
    const at::Tensor made = dequantised(quantise(x, GetParam().dtype, {}), at::kBFloat16);
    EXPECT_TRUE(made[0].eq(1).all().item<bool>());
    EXPECT_TRUE(made[1].isnan().all().item<bool>());
    EXPECT_TRUE(made[2].eq(1).all().item<bool>());
  }
}

TEST_P(EightBits, AreExactInBf16) {
  const at::Tensor x = normal({64, 256}, 3) * at::exp(8 * normal({64, 256}, 4));
  const Quantised made = quantise(x, GetParam().dtype, {1, 128});
  EXPECT_TRUE(
      at::equal(dequantised(made, at::kBFloat16).to(at::kFloat), dequantised(made, at::kFloat)));
}

TEST_P(EightBits, AreTheSameInPiecesAndAtOnce) {
  // More elements than one piece has.
  const std::int64_t columns = fp8_piece / 64;
  const at::Tensor x = normal({1, columns}, 5).to(at::kBFloat16).repeat({130, 1});
  const Quantised made = quantise(x, GetParam().dtype, {});
  const Quantised first = quantise(x.narrow(0, 0, 1), GetParam().dtype, {});
  EXPECT_TRUE(made.scales.eq(first.scales).all().item<bool>());
  EXPECT_TRUE(made.values.view(at::kByte).eq(first.values.view(at::kByte)).all().item<bool>());
}

std::string name_of(const testing::TestParamInfo<Format>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Formats, EightBits, testing::Values(e4m3, e5m2), name_of);

struct Products {
  Fp8Recipe recipe;
  Path path;
};

class Fp8Products : public testing::TestWithParam<Products> {
 protected:
  static constexpr std::int64_t tokens = 24, width = 512, features = 1024;

  const Fp8Recipe& recipe() const { return GetParam().recipe; }
  Tile of_tokens() const { return {1, recipe().scaling == Fp8Scaling::rowwise ? 0 : fp8_block}; }
  Tile of_matrix() const {
    return recipe().scaling == Fp8Scaling::rowwise ? Tile{} : Tile{fp8_block, fp8_block};
  }
  at::ScalarType gradients() const {
    return recipe().gradients == Fp8Gradients::e5m2 ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn;
  }
  Weight weight() const { return {.dense = w_FD, .fp8 = recipe()}; }

  at::Tensor x_ND = normal({tokens, width}, 1).to(at::kBFloat16);
  /// Rows and columns of other magnitudes: who scales along the wrong dim loses some of them.
  at::Tensor w_FD = (0.05 * normal({features, width}, 2) * at::exp(3 * normal({features, 1}, 4)) *
                     at::exp(3 * normal({1, width}, 5)))
                        .to(at::kBFloat16);
  at::Tensor dy_NF = (1e-6 * normal({tokens, features}, 3)).to(at::kBFloat16);
};

/// In fp64, rounded once: no further away than the sums of fp32 are, and a bit of bf16.
void expect_product(const at::Tensor& actual, const Quantised& a, const Quantised& b) {
  const at::Tensor of_a = dequantised(a, at::kDouble), of_b = dequantised(b, at::kDouble);
  const at::Tensor expected = at::mm(of_a, of_b.t());
  const at::Tensor sums = at::mm(of_a.abs(), of_b.abs().t());
  EXPECT_EQ(actual.scalar_type(), at::kBFloat16);
  const at::Tensor off = (actual.to(at::kDouble) - expected).abs();
  EXPECT_TRUE((off <= expected.abs() * 0x1p-8 + sums * 1e-5).all().item<bool>());
}

TEST_P(Fp8Products, AreThoseOfTheirOperands) {
  expect_product(matmul(x_ND, weight(), GetParam().path),
                 quantise(x_ND, at::kFloat8_e4m3fn, of_tokens()),
                 quantise(w_FD, at::kFloat8_e4m3fn, of_matrix()));
}

TEST_P(Fp8Products, OfGradientsReadTheMatrixOfTheForwardPass) {
  const Quantised w = quantise(w_FD, at::kFloat8_e4m3fn, of_matrix());
  const at::Tensor dx = matmul_backward(dy_NF, weight(), GetParam().path);
  if (recipe().scaling == Fp8Scaling::block)
    return expect_product(dx, quantise(dy_NF, gradients(), of_tokens()),
                          {w.values.t(), w.scales.t()});
  // What a row is scaled by is part of the gradients before they are rounded.
  const at::Tensor scaled = (dy_NF.to(at::kDouble) * w.scales.to(at::kDouble).t());
  EXPECT_TRUE(at::equal(scaled.to(at::kBFloat16).to(at::kDouble), scaled)) << "exact in bf16";
  expect_product(dx, quantise(scaled.to(at::kBFloat16), gradients(), of_tokens()),
                 {w.values.t(), at::ones({width, 1})});
}

TEST_P(Fp8Products, OfGradientsAreNoFurtherOffThanWithAMatrixRoundedForThem) {
  const at::Tensor exact = at::mm(dy_NF.to(at::kDouble), w_FD.to(at::kDouble));
  const Quantised dy = quantise(dy_NF, gradients(), of_tokens());
  const Quantised again = quantise(w_FD.t(), at::kFloat8_e4m3fn, of_matrix());
  const at::Tensor requantised =
      at::mm(dequantised(dy, at::kDouble), dequantised(again, at::kDouble).t());
  const auto off = [&](const at::Tensor& dx) {
    return ((dx.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
  };
  const double of_this = off(matmul_backward(dy_NF, weight(), GetParam().path));
  RecordProperty("off_by", std::to_string(of_this));
  EXPECT_LT(of_this, 1.05 * off(requantised));
  EXPECT_LT(of_this, gradients() == at::kFloat8_e5m2 ? 0.09 : 0.05);
  EXPECT_GT(of_this, 0.01);
}

TEST_P(Fp8Products, OfGradientsOfWeightsAreScaledAlongTokens) {
  // Tokens as many as GPUs multiply, and with zeros behind them.
  for (const std::int64_t all : {std::int64_t{512}, tokens}) {
    const at::Tensor x = normal({all, width}, 1).mul(at::exp(3 * normal({1, width}, 6)));
    const at::Tensor dy = 1e-6 * normal({all, features}, 3) * at::exp(3 * normal({1, features}, 7));
    const at::Tensor x_ND = x.to(at::kBFloat16), dy_NF = dy.to(at::kBFloat16);
    at::Tensor dw = at::empty_like(w_FD);
    fp8_weight_gradient_out(dw, dy_NF, x_ND, recipe(), GetParam().path);
    const std::int64_t padding = fp8_padded_tokens(all, recipe().scaling) - all;
    const auto over_tokens = [&](const at::Tensor& of) {
      return at::constant_pad_nd(of, {0, 0, 0, padding}, 0).t().contiguous();
    };
    expect_product(dw, quantise(over_tokens(dy_NF), gradients(), of_tokens()),
                   quantise(over_tokens(x_ND), at::kFloat8_e4m3fn, of_matrix()));
  }
}

TEST_P(Fp8Products, TakeAMatrixThatIsKeptInEightBits) {
  const Weight kept = {
      .quantised = quantise_matrix(w_FD, recipe()), .compute = at::kBFloat16, .fp8 = recipe()};
  EXPECT_EQ(num_outputs(kept), features);
  EXPECT_TRUE(
      at::equal(matmul(x_ND, kept, GetParam().path), matmul(x_ND, weight(), GetParam().path)));
  EXPECT_TRUE(at::equal(matmul_backward(dy_NF, kept, GetParam().path),
                        matmul_backward(dy_NF, weight(), GetParam().path)));
  const at::Tensor dense = dequantised(*kept.quantised, at::kBFloat16);
  EXPECT_TRUE(at::equal(unpacked(kept), dense));
  Weight plain = kept;
  plain.fp8.reset();
  EXPECT_TRUE(at::equal(matmul(x_ND, plain, GetParam().path),
                        matmul(x_ND, {.dense = dense}, GetParam().path)));
}

TEST_P(Fp8Products, WriteTheSameToMemoryThatIsThere) {
  at::Tensor y = at::empty({tokens, features}, x_ND.options());
  matmul_out(y, x_ND, weight(), GetParam().path);
  EXPECT_TRUE(at::equal(y, matmul(x_ND, weight(), GetParam().path)));
  at::Tensor dx = at::empty({tokens, width}, x_ND.options());
  matmul_backward_out(dx, dy_NF, weight(), GetParam().path);
  EXPECT_TRUE(at::equal(dx, matmul_backward(dy_NF, weight(), GetParam().path)));
}

TEST_P(Fp8Products, AreNearThoseOfBf16ButNotThem) {
  const at::Tensor y = matmul(x_ND, weight(), GetParam().path).to(at::kFloat);
  const at::Tensor exact = at::mm(x_ND.to(at::kFloat), w_FD.to(at::kFloat).t());
  const double off = ((y - exact).norm() / exact.norm()).item<double>();
  EXPECT_LT(off, 0.045);  // 2^-4 at most of each number of both, at random
  EXPECT_GT(off, 0.01);
}

TEST_P(Fp8Products, OfATokenDependOnThatTokenAlone) {
  const at::Tensor all = matmul(x_ND, weight(), GetParam().path);
  const at::Tensor one = matmul(x_ND.narrow(0, 5, 1), weight(), GetParam().path);
  EXPECT_TRUE(at::allclose(all.narrow(0, 5, 1), one, 0x1p-7, 1e-6));
  const at::Tensor x = quantise(x_ND, at::kFloat8_e4m3fn, of_tokens()).values.view(at::kByte);
  const at::Tensor x_one =
      quantise(x_ND.narrow(0, 5, 1), at::kFloat8_e4m3fn, of_tokens()).values.view(at::kByte);
  EXPECT_TRUE(at::equal(x.narrow(0, 5, 1), x_one));
}

/// The op with a trained matrix: y and dx of 8 bits, dW as in bf16.
struct OfEightBits : TinyWeights {
  using TinyWeights::TinyWeights;
  std::optional<Fp8Recipe> recipe;
  Weight matrix(RowRange rows) const override { return {.dense = weight(rows), .fp8 = recipe}; }
};

TEST_P(Fp8Products, LeaveTheGradientsOfWeightsToBf16) {
  const auto pass = [&](bool is_narrow) {
    OfEightBits weights({w_FD});
    if (is_narrow) weights.recipe = recipe();
    Ops ops(weights, GetParam().path);
    const at::Tensor x = x_ND.clone().set_requires_grad(true);
    const at::Tensor y = ops.linear(x, {0, 1});
    y.backward(dy_NF);
    return std::tuple(y.detach(), x.grad(), weights.gradient_of(0).clone());
  };
  const auto [y, dx, dw] = pass(true);
  const auto [y_wide, dx_wide, dw_wide] = pass(false);
  EXPECT_TRUE(at::equal(dw, dw_wide));
  EXPECT_TRUE(at::equal(y, matmul(x_ND, weight(), GetParam().path)));
  EXPECT_TRUE(at::equal(dx, matmul_backward(dy_NF, weight(), GetParam().path)));
  EXPECT_FALSE(at::equal(y, y_wide));
  EXPECT_FALSE(at::equal(dx, dx_wide));
}

TEST_P(Fp8Products, AreAddedToTheGradientsOfWeightsWhereAskedFor) {
  OfEightBits weights({w_FD});
  weights.recipe = recipe();
  weights.recipe->weight_gradients = true;
  Ops ops(weights, GetParam().path);
  const auto backward = [&] {
    ops.linear(x_ND.clone().set_requires_grad(true), {0, 1}).backward(dy_NF);
    return weights.gradient_of(0).clone();
  };
  at::Tensor expected = at::empty_like(w_FD);
  fp8_weight_gradient_out(expected, dy_NF, x_ND, *weights.recipe, GetParam().path);
  EXPECT_TRUE(at::equal(backward(), expected));
  EXPECT_TRUE(at::equal(backward(), expected + expected)) << "of the next micro-batch";
}

std::string name_of_products(const testing::TestParamInfo<Products>& info) {
  const auto& [recipe, path] = info.param;
  return std::string(recipe.scaling == Fp8Scaling::rowwise ? "rowwise" : "block") +
         (recipe.gradients == Fp8Gradients::e5m2 ? "_e5m2" : "_e4m3") +
         (path == Path::widened ? "_widened" : "");
}
INSTANTIATE_TEST_SUITE_P(
    Recipes, Fp8Products,
    testing::Values(Products{{Fp8Scaling::rowwise, Fp8Gradients::e5m2}, Path::kernels},
                    Products{{Fp8Scaling::rowwise, Fp8Gradients::e4m3}, Path::widened},
                    Products{{Fp8Scaling::block, Fp8Gradients::e5m2}, Path::widened},
                    Products{{Fp8Scaling::block, Fp8Gradients::e4m3}, Path::kernels}),
    name_of_products);

TEST(Fp8, ShowsTheSameMatrixForwardAndBackward) {
  // Scales are powers of two, so only what is tiny beside its neighbours is rounded otherwise.
  const at::Tensor w = normal({512, 512}, 9).to(at::kBFloat16);
  const auto seen = [&](const at::Tensor& of, const Tile& tile) {
    return dequantised(quantise(of, at::kFloat8_e4m3fn, tile), at::kFloat);
  };
  const at::Tensor rows = seen(w, {}), columns = seen(w.t(), {}).t(), blocks = seen(w, {128, 128});
  const at::Tensor large = w.abs() > 0.1;
  EXPECT_TRUE(at::equal(rows.masked_select(large), columns.masked_select(large)));
  EXPECT_TRUE(at::equal(rows.masked_select(large), blocks.masked_select(large)));
}

TEST(Fp8, IsForGpusThatHaveItsProducts) {
  EXPECT_FALSE(has_fp8_products(80, Fp8Scaling::rowwise));
  EXPECT_FALSE(has_fp8_products(86, Fp8Scaling::rowwise));
  EXPECT_TRUE(has_fp8_products(89, Fp8Scaling::rowwise));
  EXPECT_TRUE(has_fp8_products(90, Fp8Scaling::rowwise));
  EXPECT_FALSE(has_fp8_products(89, Fp8Scaling::block));
  EXPECT_TRUE(has_fp8_products(90, Fp8Scaling::block));
  EXPECT_FALSE(has_fp8_products(100, Fp8Scaling::block));
}

}  // namespace
}  // namespace finetune::model::fp8_test
