// SPDX-License-Identifier: Apache-2.0
#include "optim/layer_norms.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "optim/clip.hpp"
#include "support/ranks.hpp"
#include "support/shards.hpp"

namespace finetune::optim::layer_norms_test {
namespace {

/// Rows of one unit in two layers, of another in a third; one layer has nothing that is trained.
model::ParameterTable table() {
  model::ParameterTable odd = tests::odd_table();
  const int stages[] = {1, 1, 2, 2, 4, 4};
  for (std::size_t row = 0; row < odd.rows.size(); ++row)
    odd.rows[row].stage = stages[row];
  return odd;
}

float gradient_of(int row, std::int64_t i) {
  return 0.25f * tests::element_of(row, 3 * i);
}

std::vector<LayerNorm> norms_of(const comm::Communicator& ranks) {
  tests::OddShards odd(ranks, at::kFloat, table());
  odd.for_each_gradient([](int row, std::int64_t i, float& value) { value = gradient_of(row, i); });
  return LayerNormSums(odd.shards).wait();
}

TEST(LayerNorms, AreOfTheElementsOfEachLayer) {
  double weights[5] = {}, gradients[5] = {};
  const model::ParameterTable rows = table();
  for (int row = 0; row < static_cast<int>(rows.rows.size()); ++row) {
    for (std::int64_t i = 0; i < rows.row(row).count(); ++i) {
      weights[rows.row(row).stage] += std::pow(static_cast<double>(tests::element_of(row, i)), 2);
      gradients[rows.row(row).stage] += std::pow(static_cast<double>(gradient_of(row, i)), 2);
    }
  }
  const auto norms = norms_of(tests::world());
  ASSERT_EQ(norms.size(), 3u);
  for (const LayerNorm& norm : norms) {
    EXPECT_NEAR(norm.weight, std::sqrt(weights[norm.stage]), 1e-12 * norm.weight) << norm.stage;
    EXPECT_NEAR(norm.gradient, std::sqrt(gradients[norm.stage]), 1e-12) << norm.stage;
  }
  EXPECT_EQ(norms[0].stage, 1);
  EXPECT_EQ(norms[1].stage, 2);
  EXPECT_EQ(norms[2].stage, 4);
}

TEST(LayerNorms, HaveTheBitsOfOneRank) {
  const auto norms = norms_of(tests::world()), alone = norms_of(comm::Communicator());
  ASSERT_EQ(norms.size(), alone.size());
  for (std::size_t i = 0; i < norms.size(); ++i) {
    EXPECT_EQ(norms[i].weight, alone[i].weight);
    EXPECT_EQ(norms[i].gradient, alone[i].gradient);
  }
}

TEST(LayerNorms, AddUpToTheNormOfTheGradient) {
  tests::OddShards odd(tests::world(), at::kFloat, table());
  odd.for_each_gradient([](int row, std::int64_t i, float& value) { value = gradient_of(row, i); });
  double squares = 0;
  for (const LayerNorm& norm : LayerNormSums(odd.shards).wait())
    squares += norm.gradient * norm.gradient;
  const double whole = gradient_norm(odd.shards);
  EXPECT_NEAR(std::sqrt(squares), whole, 1e-12 * whole);
}

TEST(LayerNorms, OfAnInfiniteElementIsNoNumberInItsLayerAlone) {
  tests::OddShards odd(tests::world(), at::kFloat, table());
  odd.for_each_gradient([](int row, std::int64_t, float& value) {
    value = row == 5 ? std::numeric_limits<float>::infinity() : 1.0f;
  });
  const auto norms = LayerNormSums(odd.shards).wait();
  ASSERT_EQ(norms.size(), 3u);
  EXPECT_TRUE(std::isfinite(norms[0].gradient));
  EXPECT_TRUE(std::isfinite(norms[1].gradient));
  EXPECT_TRUE(std::isnan(norms[2].gradient));
  EXPECT_TRUE(std::isfinite(norms[2].weight));
}

}  // namespace
}  // namespace finetune::optim::layer_norms_test
