// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/retire.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace finetune::checkpoint::retire_test {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();
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
  const std::vector<GoodCheckpoint> good = {{50, none}, {40, 2.0}, {30, 1.0}, {20, 1.0}, {10, 3.0}};
  EXPECT_EQ(superfluous(good, {.newest = 1, .best = 1}), (Steps{40, 20, 10}));
  EXPECT_EQ(superfluous(good, {.newest = 1, .best = 2}), (Steps{40, 10}));
  EXPECT_EQ(superfluous(good, {.newest = 1, .best = 9}), Steps());
}

}  // namespace
}  // namespace finetune::checkpoint::retire_test
