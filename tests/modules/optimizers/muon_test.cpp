// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>

#include "kernels/composed_muon.hpp"
#include "modules/optimizers/golden_tensor.hpp"
#include "modules/optimizers/steps.hpp"
#include "optim/optimizer.hpp"
#include "optimizers/adamw/kind.hpp"
#include "optimizers/muon/kind.hpp"
#include "optimizers/muon/matrices.hpp"
#include "support/ranks.hpp"
#include "support/threads.hpp"

namespace finetune::optimizers::muon_test {
namespace {

using optim::OptimizerSettings;
using tests::Elements;
using tests::GoldenTensor;
using tests::OddShards;

/// An embedding, a block with matrices of both kinds, experts, a norm and a bias, and a head.
model::ParameterTable table() {
  return {.rows = {{.name = "embedding", .shape = {7, 5}, .unit = 0, .stage = 0},
                   {.name = "high", .shape = {9, 5}, .unit = 1, .stage = 1},
                   {.name = "norm", .shape = {5}, .unit = 1, .decayed = false, .stage = 1},
                   {.name = "wide", .shape = {5, 11}, .unit = 1, .lr_ratio = 2, .stage = 1},
                   {.name = "experts", .shape = {3, 4, 5}, .unit = 1, .stage = 1},
                   {.name = "bias", .shape = {9}, .unit = 1, .decayed = false, .stage = 1},
                   {.name = "head", .shape = {7, 5}, .unit = 2, .stage = 2}},
          .units = {"embedding", "block", "head"}};
}

const OptimizerSettings settings = tests::decaying_by(0.1);

Elements train(OddShards& odd, const optim::Kind& kind, const optim::OptimizerSetup& setup = {}) {
  const auto optimizer = kind.make(settings, odd.table, odd.shards, setup);
  tests::take_steps(odd, *optimizer, 4, 0.01, 0.5, tests::wave);
  return odd.elements();
}

TEST(Muon, GivesTheSameBitsOnAnyNumberOfRanks) {
  for (const auto path : {model::Path::kernels, model::Path::composed}) {
    OddShards alone(comm::Communicator(), at::kFloat, table());
    const Elements expected = train(alone, muon::kind(), {.path = path});
    OddShards odd(tests::world(), at::kFloat, table());
    tests::expect_elements_of(expected, train(odd, muon::kind(), {.path = path}));
  }
}

TEST(Muon, RoundsAtRandomToTheSameBits) {
  shard::Options options = tests::computing_in(core::DType::bf16);
  options.numbers.master = core::DType::bf16;
  const auto rounded = [&](const comm::Communicator& ranks) {
    OddShards odd(ranks, options, table());
    const auto optimizer = muon::kind().make(settings, odd.table, odd.shards,
                                             {.moments = core::DType::bf16, .seed = 3});
    tests::take_step(odd, *optimizer, 0, 0.01, 1,
                     [](int row, std::int64_t i) { return tests::wave(row, i, 1); });
    return odd.elements();
  };
  tests::expect_elements_of(rounded(comm::Communicator()), rounded(tests::world()));
}

TEST(Muon, IsAdamWOnWhatIsNoMatrixOfABlock) {
  OddShards odd(tests::world(), at::kFloat, table()), other(tests::world(), at::kFloat, table());
  const Elements adamw = train(other, adamw::kind());
  for (const auto& [element, value] : train(odd, muon::kind())) {
    const int row = element.first;
    const bool is_matrix = row == 1 || row == 3 || row == 4;
    EXPECT_EQ(value == adamw.at(element), !is_matrix) << "row " << row << ", " << element.second;
  }
}

/// Each step moves a matrix by lr * 0.2 sqrt(longer side) times a matrix whose singular values are
/// about 1.
TEST(Muon, StepsByNearlyOrthogonalMatrices) {
  const at::Tensor matrix = at::sin(at::arange(45, at::kFloat).square()).mul(1e-3).view({9, 5});
  const at::Tensor values = at::linalg_svdvals(kernels::composed::newton_schulz(matrix));
  EXPECT_GT(values.min().item<float>(), 0.5f);
  EXPECT_LT(values.max().item<float>(), 1.3f);
  EXPECT_EQ(kernels::composed::newton_schulz(at::zeros({4, 6})).count_nonzero().item<int>(), 0);
}

/// Within one tile of a product, with tiles of 9 rows, and high ones.
TEST(Muon, OrthogonalisesToTheSameBitsOnAnyThreads) {
  for (const auto& [height, width] :
       {std::pair<std::int64_t, std::int64_t>{9, 11}, {64, 23}, {37, 41}, {521, 530}}) {
    SCOPED_TRACE(testing::Message() << height << " x " << width);
    const at::Tensor matrix =
        at::sin(at::arange(height * width, at::kFloat).square()).view({height, width});
    tests::expect_same_on_any_threads(
        [&] { return std::vector<at::Tensor>{kernels::composed::newton_schulz(matrix)}; });
  }
}

TEST(Muon, EveryMatrixHasOneOwnerAndTheSameOnAllRanks) {
  OddShards odd(tests::world(), at::kFloat, table());
  const auto matrices = muon::matrices_of(odd.shards, 1);
  ASSERT_EQ(matrices.size(), 5u);  // two, and three experts
  std::string text;
  std::set<int> owners;
  for (const muon::Matrix& each : matrices) {
    text += std::to_string(each.row) + " " + std::to_string(each.first) + " " +
            std::to_string(each.owner) + "\n";
    owners.insert(each.owner);
  }
  for (const std::string& other : tests::world().all_gather_text(text))
    EXPECT_EQ(other, text);
  EXPECT_EQ(static_cast<int>(owners.size()), std::min(5, tests::world().size()));
  EXPECT_TRUE(muon::matrices_of(odd.shards, 0).empty());
  EXPECT_TRUE(muon::matrices_of(odd.shards, 2).empty());
}

TEST(Muon, HasTheNumbersOfTorch) {
  const GoldenTensor golden("muon.json");
  OptimizerSettings by = tests::decaying_by(golden.number("weight_decay"));
  by.numbers["momentum"] = golden.number("momentum");
  const auto height = static_cast<std::int64_t>(golden.number("height"));
  const auto width = static_cast<std::int64_t>(golden.number("width"));
  for (const auto& [name, shape] :
       {std::pair<const char*, std::vector<std::int64_t>>{"high", {height, width}},
        {"wide", {width, height}}}) {
    const model::ParameterTable rows = {
        .rows = {{.name = name, .shape = shape, .unit = 0, .stage = 1},
                 {.name = "head", .shape = {1}, .unit = 1, .stage = 2}},
        .units = {"block", "head"}};
    OddShards odd(tests::world(), at::kFloat, rows);
    const auto optimizer = muon::kind().make(by, odd.table, odd.shards, {});
    golden.train(odd, *optimizer, [&](std::int64_t) { return golden.number("lr"); });
    const auto expected = golden.values(name);
    odd.for_each([&](int row, std::int64_t i, float value) {
      if (row == 0) {
        EXPECT_NEAR(value, expected[static_cast<std::size_t>(i)], 1e-4) << name << " " << i;
      }
    });
  }
}

}  // namespace
}  // namespace finetune::optimizers::muon_test
