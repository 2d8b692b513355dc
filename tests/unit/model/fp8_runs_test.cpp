// SPDX-License-Identifier: Apache-2.0
#include "model/fp8_runs.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace finetune::model::fp8_runs_test {
namespace {

/// A matrix whose tiles differ by orders of magnitude.
at::Tensor some_matrix(std::int64_t outputs, std::int64_t inputs) {
  at::manual_seed(3);
  const at::Tensor sizes = at::pow(2.0, at::randint(-20, 20, {outputs, inputs})).to(at::kFloat);
  return (at::randn({outputs, inputs}) * sizes).to(at::kBFloat16);
}

/// What ranks make of it that have elements [bounds[i], bounds[i + 1]).
Quantised quantised_in_runs(const at::Tensor& matrix, Fp8Scaling scaling,
                            const std::vector<std::int64_t>& bounds) {
  const Tile tile = tile_of_matrix(scaling);
  const std::int64_t inputs = matrix.size(1);
  const at::Tensor flat = matrix.view({-1});
  const auto run = [&](std::size_t i) {
    return MatrixRun{flat.slice(0, bounds[i], bounds[i + 1]), bounds[i], inputs};
  };
  at::Tensor scales = at::zeros(
      {matrix.size(0) / tile.rows, tile.columns == 0 ? 1 : inputs / tile.columns}, at::kFloat);
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i)
    raise_largest(run(i), tile, scales);
  scales = fp8_scales(scales, at::kFloat8_e4m3fn);
  const at::Tensor values = at::empty({matrix.numel()}, at::kFloat8_e4m3fn);
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i)
    quantise_run(run(i), tile, scales, values.slice(0, bounds[i], bounds[i + 1]));
  return {values.view(matrix.sizes()), scales};
}

void expect_same_bits(const Quantised& a, const Quantised& b) {
  EXPECT_TRUE(at::equal(a.scales.view(at::kInt), b.scales.view(at::kInt)));
  EXPECT_TRUE(at::equal(a.values.view(at::kByte), b.values.view(at::kByte)));
}

class Runs : public testing::TestWithParam<Fp8Scaling> {
 protected:
  Fp8Recipe recipe() const { return {.scaling = GetParam()}; }
};

TEST_P(Runs, MakeTheMatrixThatOneRankMakes) {
  const at::Tensor matrix = some_matrix(384, 256);
  const std::int64_t all = matrix.numel();
  const Quantised whole = quantise_matrix(matrix, recipe());
  for (const std::vector<std::int64_t>& bounds :
       {std::vector<std::int64_t>{0, all},
        {0, 256 * 7, all},                         // whole rows
        {0, 1, 255, 256, 257, 600, all},           // parts of a row
        {0, 256 * 128 - 3, 256 * 300 + 200, all},  // rows of tiles cut within
        {0, 256 * 128, 256 * 256, all}})
    expect_same_bits(quantised_in_runs(matrix, GetParam(), bounds), whole);
}

TEST_P(Runs, OfOneElementEachToo) {
  const at::Tensor matrix = some_matrix(128, 128);
  std::vector<std::int64_t> bounds(static_cast<std::size_t>(matrix.numel()) + 1);
  for (std::size_t i = 0; i < bounds.size(); ++i)
    bounds[i] = static_cast<std::int64_t>(i);
  expect_same_bits(quantised_in_runs(matrix, GetParam(), bounds),
                   quantise_matrix(matrix, recipe()));
}

TEST_P(Runs, LetNoNumberHideBehindOthers) {
  at::Tensor matrix = some_matrix(256, 256);
  matrix[200][3] = std::numeric_limits<float>::quiet_NaN();
  const Quantised of = quantised_in_runs(matrix, GetParam(), {0, 256 * 199 + 5, 256 * 256});
  const at::Tensor stands_for = dequantised(of, at::kFloat);
  const at::Tensor expected = dequantised(quantise_matrix(matrix, recipe()), at::kFloat);
  EXPECT_TRUE(expected.isnan().any().item<bool>());
  EXPECT_TRUE(at::equal(stands_for.isnan(), expected.isnan()));
  EXPECT_TRUE(at::equal(stands_for.nan_to_num(7), expected.nan_to_num(7)));
}

INSTANTIATE_TEST_SUITE_P(Scalings, Runs, testing::Values(Fp8Scaling::rowwise, Fp8Scaling::block),
                         [](const auto& info) {
                           return info.param == Fp8Scaling::rowwise ? "rowwise" : "block";
                         });

TEST(Fp8, HasScalesPerBlockFromCuda129On) {
  for (const char* cuda : {"12.9", "13.0", "13.2"})
    EXPECT_TRUE(has_fp8_blocks(cuda)) << cuda;
  for (const char* cuda : {"12.8", "11.9", ""})
    EXPECT_FALSE(has_fp8_blocks(cuda)) << cuda;
}

}  // namespace
}  // namespace finetune::model::fp8_runs_test
