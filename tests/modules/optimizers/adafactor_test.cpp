// SPDX-License-Identifier: Apache-2.0
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>

#include "core/error.hpp"
#include "modules/optimizers/golden_tensor.hpp"
#include "modules/optimizers/steps.hpp"
#include "optim/optimizer.hpp"
#include "optimizers/adafactor/factored.hpp"
#include "optimizers/adafactor/kind.hpp"
#include "support/ranks.hpp"

namespace finetune::optimizers::adafactor_test {
namespace {

using optim::OptimizerSettings;
using tests::Elements;
using tests::GoldenTensor;
using tests::OddShards;

/// Matrices of both kinds, experts, vectors, and an embedding of which three rows are trained.
model::ParameterTable table() {
  return {.rows = {{.name = "embedding",
                    .shape = {7, 5},
                    .unit = 0,
                    .stage = 0,
                    .trained_rows = model::RowSpan{2, 3}},
                   {.name = "high", .shape = {9, 5}, .unit = 1, .stage = 1},
                   {.name = "norm", .shape = {5}, .unit = 1, .decayed = false, .stage = 1},
                   {.name = "wide", .shape = {5, 11}, .unit = 1, .lr_ratio = 2, .stage = 1},
                   {.name = "experts", .shape = {3, 4, 5}, .unit = 1, .stage = 1},
                   {.name = "convolution", .shape = {6, 1, 4}, .unit = 1, .stage = 1},
                   {.name = "head", .shape = {7, 5}, .unit = 2, .stage = 2}},
          .units = {"embedding", "block", "head"}};
}

model::ParameterTable table_of(std::vector<model::Parameter> rows) {
  return {.rows = std::move(rows), .units = {"block"}};
}

const OptimizerSettings settings = tests::decaying_by(0.1);

/// Of very different sizes, whose sums in floating point would depend on their order.
float gradient_of(int row, std::int64_t i, std::int64_t step) {
  const float wave = std::sin(static_cast<float>(7 * row + 3 * i + 5 * step));
  return wave * std::exp(static_cast<float>(i % 11) - 9);
}

Elements train(OddShards& odd, const optim::OptimizerSetup& setup = {}, double scale = 0.5,
               float factor = 1) {
  const auto optimizer = adafactor::kind().make(settings, odd.table, odd.shards, setup);
  tests::take_steps(odd, *optimizer, 4, 0.01, scale,
                    [&](int row, std::int64_t i, std::int64_t step) {
                      return factor * gradient_of(row, i, step);
                    });
  return odd.elements();
}

TEST(Adafactor, GivesTheSameBitsOnAnyNumberOfRanks) {
  for (const auto path : {model::Path::kernels, model::Path::composed}) {
    OddShards alone(comm::Communicator(), at::kFloat, table());
    const Elements expected = train(alone, {.path = path});
    OddShards odd(tests::world(), at::kFloat, table());
    tests::expect_elements_of(expected, train(odd, {.path = path}));
  }
}

TEST(Adafactor, KeepsTheSameFactorsOnAllRanks) {
  OddShards alone(comm::Communicator(), at::kFloat, table());
  OddShards odd(tests::world(), at::kFloat, table());
  const auto expected = adafactor::kind().make(settings, alone.table, alone.shards, {});
  const auto optimizer = adafactor::kind().make(settings, odd.table, odd.shards, {});
  for (const auto& [shards, its] : {std::pair(&alone, &expected), {&odd, &optimizer}}) {
    tests::take_step(*shards, **its, 0, 0.01, 1,
                     [](int row, std::int64_t i) { return gradient_of(row, i, 3); });
  }
  const std::int64_t counts[3][3] = {{7, 5, 0}, {9 + 5 + 12 + 6, 5 + 11 + 15 + 24, 5}, {7, 5, 0}};
  for (const int unit : odd.shards.trained_units()) {
    const auto kept = optimizer->kept(unit);
    ASSERT_EQ(kept.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(kept[i].values.numel(), counts[unit][i]);
      EXPECT_TRUE(kept[i].values.equal(expected->kept(unit)[i].values)) << kept[i].kind;
    }
  }
}

TEST(Adafactor, LeavesRowsThatAreNotTrainedAlone) {
  OddShards odd(tests::world(), at::kFloat, table());
  for (const auto& [element, value] : train(odd)) {
    if (element.first != 0) continue;
    const bool is_trained = element.second >= 10 && element.second < 25;
    EXPECT_EQ(value != tests::element_of(0, element.second), is_trained) << element.second;
  }
}

/// As the start of an adapter, which lies beside the weights that are trained.
TEST(Adafactor, KeepsNoMeansOfWhatIsNotTrainedAtAll) {
  OddShards odd(
      tests::world(), at::kFloat,
      table_of({{.name = "start", .shape = {4, 5}, .unit = 0, .trained_rows = model::RowSpan{}},
                {.name = "trained", .shape = {3, 5}, .unit = 0}}));
  const auto optimizer = adafactor::kind().make(settings, odd.table, odd.shards, {});
  tests::take_step(odd, *optimizer, 0, 0.01, 1,
                   [](int row, std::int64_t i) { return row == 0 ? 0 : gradient_of(row, i, 1); });
  for (const auto& [i_state, not_trained] : {std::pair(0, 4), {1, 5}}) {
    const at::Tensor factors = optimizer->state(0, static_cast<std::size_t>(i_state));
    const at::Tensor is_zero = factors.eq(0);
    EXPECT_TRUE(is_zero.narrow(0, 0, not_trained).all().item<bool>()) << factors;
    EXPECT_FALSE(is_zero.narrow(0, not_trained, factors.numel() - not_trained).any().item<bool>());
    EXPECT_TRUE(at::isfinite(factors).all().item<bool>()) << factors;
  }
  odd.for_each([](int row, std::int64_t i, float value) {
    EXPECT_EQ(value == tests::element_of(row, i), row == 0) << row << ", " << i;
  });
}

TEST(Adafactor, RoundsAtRandomToTheSameBits) {
  shard::Options options = tests::computing_in(core::DType::bf16);
  options.numbers.master = core::DType::bf16;
  const auto rounded = [&](const comm::Communicator& ranks) {
    OddShards odd(ranks, options, table());
    const auto optimizer = adafactor::kind().make(settings, odd.table, odd.shards, {.seed = 3});
    tests::take_step(odd, *optimizer, 0, 0.01, 1,
                     [](int row, std::int64_t i) { return gradient_of(row, i, 1); });
    return odd.elements();
  };
  tests::expect_elements_of(rounded(comm::Communicator()), rounded(tests::world()));
}

TEST(Adafactor, TakesExpertsAndTrainedRowsAsMatricesOfTheirOwn) {
  OddShards joined(tests::world(), at::kFloat,
                   table_of({{.name = "experts", .shape = {2, 3, 5}, .unit = 0}}));
  OddShards apart(tests::world(), at::kFloat,
                  table_of({{.name = "first", .shape = {3, 5}, .unit = 0},
                            {.name = "second", .shape = {3, 5}, .unit = 0}}));
  OddShards some(tests::world(), at::kFloat,
                 table_of({{.name = "embedding",
                            .shape = {6, 5},
                            .unit = 0,
                            .trained_rows = model::RowSpan{3, 3}}}));
  Elements values[3];
  int i_values = 0;
  for (OddShards* each : {&joined, &apart, &some}) {
    // The same weights and gradients by their place in the unit.
    const auto place = [](int row, std::int64_t i) { return 15 * row + i; };
    each->for_each([&](int row, std::int64_t i, float& value) {
      value = tests::element_of(0, place(row, i));
    });
    const auto optimizer = adafactor::kind().make(settings, each->table, each->shards, {});
    tests::take_step(*each, *optimizer, 0, 0.01, 1, [&](int row, std::int64_t i) {
      const bool is_trained = each != &some || i >= 15;
      return is_trained ? gradient_of(0, place(row, i), 1) : 0;
    });
    each->for_each([&](int row, std::int64_t i, float value) {
      values[i_values][{0, place(row, i)}] = value;
    });
    ++i_values;
  }
  EXPECT_EQ(values[0], values[1]);
  for (const auto& [element, value] : values[2]) {
    if (element.second >= 15) {
      EXPECT_EQ(value, values[0].at(element)) << element.second;
    }
  }
}

/// Few operations for all channels: each of them takes longer to begin than to compute.
TEST(Adafactor, UpdatesTheChannelsOfAConvolutionTogether) {
  static std::int64_t num_operations;  // for a function without state
  num_operations = 0;
  OddShards odd(comm::Communicator(), at::kFloat,
                table_of({{.name = "convolution", .shape = {500, 1, 4}, .unit = 0}}));
  const auto optimizer = adafactor::kind().make(settings, odd.table, odd.shards, {});
  odd.for_each_gradient(
      [&](int row, std::int64_t i, float& value) { value = gradient_of(row, i, 0); });
  const auto count = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
    ++num_operations;
    return nullptr;
  };
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(count).scopes({at::RecordScope::FUNCTION}));
  optimizer->step(odd.shards, 0, 0.01, 1);
  at::removeCallback(handle);
  EXPECT_GT(num_operations, 20);
  EXPECT_LT(num_operations, 1000);
}

/// The first step moves a matrix by a root mean square of lr at most, whatever the gradient.
TEST(Adafactor, LimitsTheSizeOfAnUpdate) {
  const model::ParameterTable rows = table_of({{.name = "matrix", .shape = {9, 5}, .unit = 0}});
  for (const float size : {1e-12f, 1.0f, 1e6f}) {
    OddShards odd(tests::world(), at::kFloat, rows);
    OptimizerSettings by;
    by.numbers["clip_threshold"] = 0.5;
    const auto optimizer = adafactor::kind().make(by, odd.table, odd.shards, {});
    tests::take_step(odd, *optimizer, 0, 0.01, 1,
                     [&](int row, std::int64_t i) { return size * gradient_of(row, i, 0); });
    double squares = 0;
    odd.for_each([&](int row, std::int64_t i, float value) {
      squares += std::pow(value - tests::element_of(row, i), 2);
    });
    const double all = tests::world().all_reduce(squares, comm::Reduce::sum);
    EXPECT_NEAR(std::sqrt(all / 45), 0.5 * 0.01, 1e-5) << size;
  }
}

TEST(Adafactor, RefusesMatricesWhoseSumsWouldNotBeExact) {
  const model::ParameterTable rows =
      table_of({{.name = "much", .shape = {1, std::int64_t{1} << 19}, .unit = 0}});
  const plan::ShardMap map(rows, 1, {});
  EXPECT_THROW(adafactor::factored_of(rows, map.unit(0)), core::Error);
}

TEST(Adafactor, HasTheNumbersOfTransformers) {
  const GoldenTensor golden("adafactor.json");
  OptimizerSettings by = tests::decaying_by(golden.number("weight_decay"));
  by.numbers["clip_threshold"] = golden.number("clip_threshold");
  const auto height = static_cast<std::int64_t>(golden.number("height"));
  const auto width = static_cast<std::int64_t>(golden.number("width"));
  const std::pair<std::string, std::vector<std::int64_t>> cases[] = {
      {"high", {height, width}}, {"wide", {width, height}}, {"vector", {height * width}}};
  for (const auto& [name, shape] : cases) {
    OddShards odd(tests::world(), at::kFloat,
                  table_of({{.name = name, .shape = shape, .unit = 0}}));
    const auto optimizer = adafactor::kind().make(by, odd.table, odd.shards, {});
    golden.train(odd, *optimizer, [&](std::int64_t) { return golden.number("lr"); });
    const auto expected = golden.values(name.c_str());
    odd.for_each([&](int, std::int64_t i, float value) {
      EXPECT_NEAR(value, expected[static_cast<std::size_t>(i)], 2e-6) << name << " " << i;
    });
    const bool is_vector = shape.size() == 1;
    const std::pair<std::size_t, const char*> factors[] = {
        {0, ".exp_avg_sq_row"}, {1, ".exp_avg_sq_col"}, {2, ".exp_avg_sq"}};
    for (const auto& [i_state, kind] : factors) {
      if ((i_state == 2) != is_vector) continue;
      const auto kept = optimizer->state(0, i_state);
      const auto theirs = golden.values((name + kind).c_str());
      ASSERT_EQ(kept.numel(), std::ssize(theirs)) << name << kind;
      for (std::int64_t i = 0; i < kept.numel(); ++i) {
        const float value = theirs[static_cast<std::size_t>(i)];
        EXPECT_NEAR(kept[i].item<float>(), value, 2e-6f * value) << name << kind << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace finetune::optimizers::adafactor_test
