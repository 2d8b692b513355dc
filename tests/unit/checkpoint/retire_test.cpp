// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/retire.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace finetune::checkpoint::retire_test {
namespace {

const std::optional<Score> none = std::nullopt;

std::optional<Score> loss(double value) {
  return Score{.name = "validation_loss", .value = value, .less_is_better = true};
}

std::optional<Score> accuracy(double value) {
  return Score{.name = "arc/accuracy", .value = value, .less_is_better = false};
}

using Steps = std::vector<std::int64_t>;

TEST(Retention, KeepsTheNewest) {
  const std::vector<GoodCheckpoint> good = {{40, none}, {30, none}, {20, none}, {10, none}};
  EXPECT_EQ(superfluous(good, {.newest = 1}), (Steps{30, 20, 10}));
  EXPECT_EQ(superfluous(good, {.newest = 3}), (Steps{10}));
  EXPECT_EQ(superfluous(good, {.newest = 9}), Steps());
}

TEST(Retention, KeepsMultiplesForGood) {
  const std::vector<GoodCheckpoint> good = {
      {40, none}, {30, none}, {20, none}, {10, none}, {0, none}};
  EXPECT_EQ(superfluous(good, {.newest = 1, .every = 20}), (Steps{30, 10}));
}

TEST(Retention, KeepsTheBestOfThoseThatWereValidated) {
  const std::vector<GoodCheckpoint> good = {
      {50, none}, {40, loss(2)}, {30, loss(1)}, {20, loss(1)}, {10, loss(3)}};
  EXPECT_EQ(superfluous(good, {.newest = 1, .best = 1}), (Steps{40, 20, 10}));
  EXPECT_EQ(superfluous(good, {.newest = 1, .best = 2}), (Steps{40, 10}));
  EXPECT_EQ(superfluous(good, {.newest = 1, .best = 9}), Steps());
}

TEST(Retention, KnowsWhereMoreIsBetter) {
  const std::vector<GoodCheckpoint> good = {
      {50, none}, {40, accuracy(0.5)}, {30, accuracy(0.75)}, {20, accuracy(0.25)}};
  EXPECT_EQ(superfluous(good, {.newest = 1, .best = 1}), (Steps{40, 20}));
}

TEST(Retention, ComparesNoScoresOfDifferentNames) {
  const std::vector<GoodCheckpoint> good = {
      {50, accuracy(0.25)}, {40, loss(0.5)}, {30, accuracy(0.5)}, {20, loss(0.125)}};
  EXPECT_EQ(superfluous(good, {.newest = 1, .best = 1}), (Steps{40, 20}));
}

}  // namespace
}  // namespace finetune::checkpoint::retire_test
