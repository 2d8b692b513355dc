// SPDX-License-Identifier: Apache-2.0
// Experts whose products have operands of 8 bits: against what their operands stand for, and of all
// experts together against one after the other.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "model/detail/expert_products.hpp"
#include "model/fp8_products.hpp"
#include "model/ops.hpp"
#include "support/weights.hpp"

namespace finetune::model::fp8_experts_test {
namespace {

using tests::expect_within;
using tests::normal;
using enum ExpertProducts::Projection;
using Counts = std::vector<std::int64_t>;

/// The router; then gate with up and down of each expert, one behind the other, as a unit has them
/// that was gathered: values of 8 bits, and scales elsewhere.
class NarrowExperts : public Weights {
 public:
  NarrowExperts(const Fp8Recipe& recipe, std::int64_t num, std::int64_t width, std::int64_t hidden)
      : recipe(recipe), router(normal({num, width}, 1).to(at::kBFloat16)) {
    std::vector<at::Tensor> values, scales;
    for (std::int64_t row = 0; row < 2 * num; ++row) {
      const bool is_gate_up = row % 2 == 0;
      const std::int64_t out = is_gate_up ? 2 * hidden : width, in = is_gate_up ? width : hidden;
      const auto seed = static_cast<std::uint64_t>(10 + row);
      // Rows of other magnitudes: who takes the scales of another row, or expert, is far off.
      dense.push_back((0.1 * normal({out, in}, seed) * at::exp(2 * normal({out, 1}, 50 + seed)))
                          .to(at::kBFloat16));
      const Quantised of = quantise_matrix(dense.back(), recipe);
      values.push_back(of.values.view(at::kByte).flatten());
      scales.push_back(of.scales.flatten());
      scales_of_.push_back(of.scales);
      gradients.push_back(at::full_like(dense.back(), 1e30));
    }
    values_ = at::cat(values);
    all_scales_ = at::cat(scales);
    written_.resize(dense.size(), false);
  }

  at::Tensor weight(RowRange rows) const override {
    return rows.first == 0 ? router : unpacked(matrix(rows));
  }
  Weight matrix(RowRange rows) const override {
    if (rows.first == 0) return {.dense = router};
    EXPECT_FALSE(only_together);
    if (!recipe) return {.dense = dense[index(rows)]};
    Weight one = as_series({rows});
    one.quantised->values = one.quantised->values[0];
    one.quantised->scales = one.quantised->scales[0];
    return one;
  }
  Weight series(const RowSeries& series) const override {
    return only_together ? as_series(series) : Weight();
  }
  bool has_series_gradient(const RowSeries&) const override { return false; }
  GradientSlot gradient(RowRange rows) override {
    if (rows.first == 0) return {};
    const bool was_written = written_[index(rows)];
    written_[index(rows)] = true;
    return {gradients[index(rows)], was_written};
  }

  std::optional<Fp8Recipe> recipe;  ///< none: as in bf16, of the numbers before they were rounded
  at::Tensor router;
  std::vector<at::Tensor> dense, gradients;
  bool only_together = false;

 private:
  static std::size_t index(RowRange rows) { return static_cast<std::size_t>(rows.first - 1); }

  Weight as_series(const RowSeries& series) const {
    const std::size_t first = index(series.first);
    std::int64_t offset = 0, scale = 0, distance = 0, distance_of_scales = 0;
    for (std::size_t i = 0; i < first; ++i) {
      offset += dense[i].numel();
      scale += scales_of_[i].numel();
    }
    for (std::size_t i = 0; i < 2; ++i) {
      distance += dense[i].numel();
      distance_of_scales += scales_of_[i].numel();
    }
    const at::Tensor &one = dense[first], &scales = scales_of_[first];
    return {.quantised =
                Quantised{values_.view(at::kFloat8_e4m3fn)
                              .as_strided({series.num, one.size(0), one.size(1)},
                                          {distance, one.size(1), 1}, offset),
                          all_scales_.as_strided({series.num, scales.size(0), scales.size(1)},
                                                 {distance_of_scales, scales.size(1), 1}, scale)},
            .compute = at::kBFloat16,
            .fp8 = recipe};
  }

  at::Tensor values_, all_scales_;
  std::vector<at::Tensor> scales_of_;
  std::vector<bool> written_;
};

constexpr ExpertRows rows{.router = 0, .gate_up = {1, 1}, .down = 2, .stride = 2};

class ExpertsInEightBits : public testing::TestWithParam<Fp8Recipe> {
 protected:
  static constexpr std::int64_t num_experts = 4;
  bool is_rowwise() const { return GetParam().scaling == Fp8Scaling::rowwise; }
  std::int64_t width() const { return is_rowwise() ? 48 : 512; }
  std::int64_t hidden() const { return is_rowwise() ? 32 : 512; }
  NarrowExperts weights() const { return {GetParam(), num_experts, width(), hidden()}; }

  struct Results {
    at::Tensor y, dx;
    std::vector<at::Tensor> gradients;
  };
  /// Two passes, the second of which adds to the gradients of the first.
  Results passes(NarrowExperts& weights, const Counts& counts, bool may_group,
                 ExpertProducts::Projection projection) const {
    const std::int64_t in = projection == down ? hidden() : width();
    const std::int64_t out = projection == down ? width() : 2 * hidden();
    const std::int64_t num = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const RowCounts row_counts(counts, at::kCPU);
    const ExpertProducts products(weights, rows, {0, num_experts}, row_counts, may_group,
                                  Path::kernels);
    Results results;
    for (std::uint64_t pass = 0; pass < 2; ++pass) {
      const at::Tensor x = normal({num, in}, 5 + pass).to(at::kBFloat16);
      at::Tensor dy = normal({num, out}, 7 + pass).to(at::kBFloat16);
      results.y = products.product(x, projection, out);
      results.dx = products.backward(dy, projection, in);
      if (!weights.only_together) products.add_gradients(dy, x, projection);
    }
    results.gradients = weights.gradients;
    return results;
  }
};

/// Each expert's rows by themselves.
TEST_P(ExpertsInEightBits, HaveTheProductsOfTheirMatrices) {
  const Counts counts = {3, 0, 7, 2};
  for (const auto projection : {gate_up, down}) {
    NarrowExperts narrow = weights();
    const Results got = passes(narrow, counts, false, projection);
    for (std::int64_t i = 0, first = 0; i < num_experts; first += counts[i++]) {
      if (counts[i] == 0) continue;
      const auto own = [&](std::int64_t columns, std::uint64_t seed) {
        return normal({12, columns}, seed).to(at::kBFloat16).narrow(0, first, counts[i]);
      };
      const at::Tensor& matrix = narrow.dense[2 * i + (projection == down ? 1 : 0)];
      const at::Tensor x = own(matrix.size(1), 6), dy = own(matrix.size(0), 8);
      const Quantised of = quantise_matrix(matrix, GetParam());
      EXPECT_TRUE(at::equal(got.y.narrow(0, first, counts[i]),
                            fp8_product(x, of, GetParam(), Path::kernels)));
      EXPECT_TRUE(at::equal(got.dx.narrow(0, first, counts[i]),
                            fp8_product_backward(dy, of, GetParam(), Path::kernels)));
    }
  }
}

TEST_P(ExpertsInEightBits, HaveGradientsOfWeightsInBf16UnlessAskedFor) {
  const Counts counts = {3, 0, 7, 2};
  const auto gradients = [&](const std::optional<Fp8Recipe>& recipe) {
    NarrowExperts narrow = weights();
    narrow.recipe = recipe;
    return passes(narrow, counts, false, gate_up).gradients;
  };
  Fp8Recipe of_all = GetParam();
  of_all.weight_gradients = true;
  const auto wide = gradients({}), usual = gradients(GetParam()), narrow = gradients(of_all);
  for (const std::size_t row : {0, 4, 6}) {
    EXPECT_TRUE(at::equal(usual[row], wide[row])) << row;
    EXPECT_FALSE(at::equal(narrow[row], wide[row])) << row;
    expect_within(narrow[row], wide[row], 0.15);
  }
}

TEST_P(ExpertsInEightBits, AreComputedTogetherAsOneAfterTheOther) {
  for (const Counts& counts : {Counts{3, 1, 7, 2}, Counts{0, 5, 0, 6}, Counts{0, 0, 9, 0}}) {
    for (const auto projection : {gate_up, down}) {
      NarrowExperts together = weights(), in_turn = weights();
      together.only_together = true;
      const Results a = passes(together, counts, true, projection);
      const Results b = passes(in_turn, counts, false, projection);
      expect_within(a.y, b.y, 0x1p-7);
      expect_within(a.dx, b.dx, 0x1p-7);
    }
  }
}

/// A layer, forward, by its definition: operands rounded to 8 bits, multiplied in fp32.
at::Tensor by_definition(const at::Tensor& x, const NarrowExperts& weights, const Experts& e,
                         const Fp8Recipe& recipe) {
  const auto narrow = [](const Quantised& of) { return dequantised(of, at::kFloat); };
  const auto product = [&](const at::Tensor& of, const at::Tensor& matrix) {
    const Quantised a = quantise(of.to(at::kBFloat16), at::kFloat8_e4m3fn,
                                 {1, recipe.scaling == Fp8Scaling::rowwise ? 0 : fp8_block});
    return at::mm(narrow(a), narrow(quantise_matrix(matrix, recipe)).t());
  };
  const at::Tensor logits = at::mm(x.to(at::kFloat), weights.router.to(at::kFloat).t());
  const auto [top, chosen] = logits.to(at::kBFloat16).to(at::kFloat).softmax(1).topk(e.top_k, 1);
  const at::Tensor weight = top / top.sum(1, true);
  at::Tensor y = at::zeros(x.sizes(), at::kFloat);
  for (std::int64_t i = 0; i < e.num; ++i) {
    const auto halves = product(x, weights.dense[static_cast<std::size_t>(2 * i)]).chunk(2, 1);
    const at::Tensor activated = at::silu(halves[0]) * halves[1];
    y += product(activated, weights.dense[static_cast<std::size_t>(2 * i + 1)]) *
         (weight * chosen.eq(i)).sum(1, true);
  }
  return y;
}

TEST_P(ExpertsInEightBits, MakeALayerOfWhatTheirOperandsStandFor) {
  Experts e;
  e.num = num_experts;
  e.top_k = 2;
  e.d_ff = hidden();
  e.normalizes = true;
  Sequence sequence;
  sequence.length = 24;
  const at::Tensor x = normal({24, width()}, 3).to(at::kBFloat16);
  NarrowExperts narrow = weights(), wide = weights();
  wide.recipe.reset();
  const at::Tensor expected = by_definition(x, narrow, e, GetParam());
  const auto off = [&](NarrowExperts& of) {
    const at::Tensor y = Ops(of).experts(x, {}, rows, e, sequence).to(at::kFloat);
    return ((y - expected).norm() / expected.norm()).item<double>();
  };
  // Where bf16 rounds what lies between the products, another value of 8 bits may be nearest.
  EXPECT_LT(off(narrow), 0.01);
  EXPECT_GT(off(wide), 3 * off(narrow)) << "bf16 is further off than rounding";
}

INSTANTIATE_TEST_SUITE_P(Recipes, ExpertsInEightBits,
                         testing::Values(Fp8Recipe{},
                                         Fp8Recipe{Fp8Scaling::rowwise, Fp8Gradients::e4m3},
                                         Fp8Recipe{Fp8Scaling::block, Fp8Gradients::e5m2}),
                         [](const auto& info) {
                           return std::string(info.param.scaling == Fp8Scaling::rowwise ? "rowwise"
                                                                                        : "block") +
                                  (info.param.gradients == Fp8Gradients::e5m2 ? "_e5m2" : "_e4m3");
                         });

}  // namespace
}  // namespace finetune::model::fp8_experts_test
