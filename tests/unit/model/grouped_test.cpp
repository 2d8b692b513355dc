// SPDX-License-Identifier: Apache-2.0
// Products of all experts together against those of one after the other.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "model/detail/expert_products.hpp"
#include "model/detail/grouped_products.hpp"
#include "support/weights.hpp"

namespace finetune::model::grouped_test {
namespace {

using tests::expect_within;
using tests::normal;
using enum ExpertProducts::Projection;
using Counts = std::vector<std::int64_t>;

constexpr std::int64_t width = 16, hidden = 8, num_experts = 4;
constexpr std::int64_t an_expert = 3 * hidden * width;

/// Gate with up and then down of each expert, one behind the other.
class ExpertsInAUnit : public Weights {
 public:
  explicit ExpertsInAUnit(at::ScalarType dtype)
      : flat_(normal({num_experts * an_expert}, 1).to(dtype)),
        gradient_(at::full_like(flat_, 1e30)) {}

  at::Tensor weight(RowRange rows) const override {
    EXPECT_FALSE(only_together);
    return one(flat_, rows);
  }
  GradientSlot gradient(RowRange rows) override {
    EXPECT_FALSE(only_together);
    const bool was_written = written_[index(rows)];
    written_[index(rows)] = true;
    return {one(gradient_, rows), was_written};
  }
  Weight series(const RowSeries& series) const override {
    return only_together ? Weight{.dense = all(flat_, series)} : Weight();
  }
  bool has_series_gradient(const RowSeries&) const override { return only_together; }
  GradientSlot series_gradient(const RowSeries& series) override {
    const bool was_written = written_[index(series.first)];
    for (std::int64_t i = 0; i < series.num; ++i)
      written_[index(series.at(i))] = true;
    return {all(gradient_, series), was_written};
  }

  /// Where nothing was written, nothing was added.
  at::Tensor gradients() const {
    at::Tensor sum = gradient_.clone();
    for (int row = 0; row < 2 * num_experts; ++row)
      if (!written_[static_cast<std::size_t>(row)]) one(sum, {row, 1}).zero_();
    return sum;
  }

  bool only_together = false;

 private:
  static std::size_t index(RowRange rows) { return static_cast<std::size_t>(rows.first); }
  static at::Tensor one(const at::Tensor& flat, RowRange rows) { return all(flat, {rows})[0]; }
  static at::Tensor all(const at::Tensor& flat, const RowSeries& series) {
    const bool is_down = series.first.first % 2 != 0;
    const std::int64_t offset =
        series.first.first / 2 * an_expert + (is_down ? 2 * hidden * width : 0);
    const std::int64_t out = is_down ? width : 2 * hidden, in = is_down ? hidden : width;
    return flat.as_strided({series.num, out, in}, {an_expert, in, 1}, offset);
  }

  at::Tensor flat_, gradient_;
  std::vector<bool> written_ = std::vector<bool>(2 * num_experts, false);
};

constexpr ExpertRows in_a_unit{.router = -1, .gate_up = {0, 1}, .down = 1, .stride = 2};
constexpr ExpertRows in_one_tensor{.router = -1, .gate_up = {0, 1}, .down = 1, .stride = 0};

struct Results {
  at::Tensor y, dx, gradient;
};

/// Two passes, the second of which adds to the gradients of the first.
Results passes(Weights& weights, const ExpertRows& rows, const Counts& counts, bool may_group,
               ExpertProducts::Projection projection, at::ScalarType dtype) {
  const std::int64_t in = projection == down ? hidden : width;
  const std::int64_t out = projection == down ? width : 2 * hidden;
  const std::int64_t num_rows = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const RowCounts row_counts(counts, at::kCPU);
  const ExpertProducts products(weights, rows, {0, num_experts}, row_counts, may_group,
                                Path::kernels);
  Results results;
  for (std::uint64_t pass = 0; pass < 2; ++pass) {
    const at::Tensor x = normal({num_rows, in}, 5 + pass).to(dtype);
    at::Tensor dy = normal({num_rows, out}, 7 + pass).to(dtype);
    results.y = products.product(x, projection, out);
    results.dx = products.backward(dy, projection, in);
    products.add_gradients(dy, x, projection);
  }
  return results;
}

struct Case {
  const char* name;
  Counts counts;
};

class Experts : public testing::TestWithParam<Case> {};

TEST_P(Experts, AreComputedTogetherAsOneAfterTheOther) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const double tolerance = dtype == at::kFloat ? 1e-6 : 1e-2;
    for (const auto projection : {gate_up, down}) {
      ExpertsInAUnit together(dtype), in_turn(dtype);
      together.only_together = true;
      const Counts& counts = GetParam().counts;
      const Results a = passes(together, in_a_unit, counts, true, projection, dtype);
      const Results b = passes(in_turn, in_a_unit, counts, false, projection, dtype);
      expect_within(a.y, b.y, tolerance);
      expect_within(a.dx, b.dx, tolerance);
      expect_within(together.gradients(), in_turn.gradients(), tolerance);
    }
  }
}

TEST_P(Experts, AreComputedTogetherInOneTensor) {
  const std::vector<at::Tensor> tensors = {normal({num_experts, width, 2 * hidden}, 1),
                                           normal({num_experts, hidden, width}, 2)};
  for (const auto projection : {gate_up, down}) {
    tests::TinyWeights together(tensors), in_turn(tensors);
    const Counts& counts = GetParam().counts;
    const Results a = passes(together, in_one_tensor, counts, true, projection, at::kFloat);
    const Results b = passes(in_turn, in_one_tensor, counts, false, projection, at::kFloat);
    expect_within(a.y, b.y, 1e-6);
    expect_within(a.dx, b.dx, 1e-6);
    const int row = projection == down ? 1 : 0;
    expect_within(together.gradient_of(row), in_turn.gradient_of(row), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Experts,
                         testing::Values(Case{"AnyNumbersOfRows", {3, 1, 7, 2}},
                                         Case{"SomeWithoutRows", {0, 5, 0, 6}},
                                         Case{"OneWithAllRows", {0, 0, 9, 0}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Kernels, TakeWhatBeginsAtMultiplesOf16Bytes) {
  const auto bf16 = at::TensorOptions(at::kBFloat16);
  const at::Tensor rows = at::zeros({3, 16}, bf16), matrices = at::zeros({4, 8, 16}, bf16);
  EXPECT_TRUE(takes_grouped(rows, matrices));
  EXPECT_TRUE(takes_grouped(rows, matrices.transpose(1, 2)));
  EXPECT_FALSE(takes_grouped(rows.narrow(0, 0, 0), matrices)) << "no rows";
  EXPECT_FALSE(takes_grouped(rows, at::zeros({4, 8, 12}, bf16))) << "rows of 24 bytes";
  EXPECT_FALSE(takes_grouped(rows, at::zeros({4, 12, 16}, bf16))) << "outputs of 24 bytes";
  EXPECT_FALSE(takes_grouped(rows, at::zeros({1024, 8, 16}, bf16))) << "too many experts";
  const at::Tensor flat = at::zeros({1000}, bf16);
  EXPECT_TRUE(takes_grouped(rows, flat.as_strided({4, 8, 16}, {136, 16, 1})));
  EXPECT_FALSE(takes_grouped(rows, flat.as_strided({4, 8, 16}, {132, 16, 1}))) << "their distance";
  EXPECT_FALSE(takes_grouped(rows, flat.as_strided({4, 8, 16}, {136, 16, 1}, 4))) << "the first";
  EXPECT_TRUE(takes_grouped_outer(rows, rows, 4));
  EXPECT_FALSE(takes_grouped_outer(rows, at::zeros({3, 12}, bf16), 4));
  EXPECT_FALSE(has_grouped_products(at::kCPU, at::kBFloat16));
}

}  // namespace
}  // namespace finetune::model::grouped_test
