// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/loss_guard.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/messages.hpp"

namespace finetune::train::loss_guard_test {
namespace {

const model::Outputs of_tokens = {};
const model::Outputs of_two_labels = {.kind = model::HeadKind::one_label, .num = 2};

/// The steps whose losses are told of.
std::vector<std::int64_t> told(LossGuard guard, const std::vector<double>& losses) {
  std::vector<std::int64_t> steps;
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (guard.add(static_cast<std::int64_t>(i) + 1, losses[i]))
      steps.push_back(static_cast<std::int64_t>(i) + 1);
  return steps;
}

using Steps = std::vector<std::int64_t>;

TEST(LossGuard, TellsOnceOfALossThatExplodes) {
  // A vocabulary of 512: a guess has a loss of 6.24.
  EXPECT_EQ(told({of_tokens, 512}, {6.3, 6.1, 1.6e6, 2e6, 3e6}), Steps{3});
  EXPECT_EQ(told({of_tokens, 512}, {2.0, 12.0, 13.0, 13.0}), Steps{4}) << "twice that of a guess";
  EXPECT_EQ(told({of_two_labels, 512}, {0.7, 40.0}), Steps{2});
}

TEST(LossGuard, IsSilentOnLossesThatRunsInGoodOrderHave) {
  EXPECT_EQ(told({of_tokens, 512}, {2.0, 2.4, 1.9, 9.0, 1.8}), Steps{}) << "a spike";
  EXPECT_EQ(told({of_tokens, 8}, {1.0, 4.6, 0.9, 4.6}), Steps{}) << "one sample of a token, wrong";
  EXPECT_EQ(told({of_tokens, 512}, {30.0, 45.0, 20.0, 8.0}), Steps{}) << "a wild beginning";
  EXPECT_EQ(told({of_two_labels, 512}, {0.7, 0.1, 3.0, 5.0}), Steps{}) << "sure, and wrong";
  EXPECT_EQ(told({of_tokens, 512}, {2.0, std::numeric_limits<double>::infinity()}), Steps{})
      << "others end runs at that";
}

TEST(LossGuard, KnowsNoLimitForLossesThatAreNotOfAGuess) {
  for (const model::HeadKind kind :
       {model::HeadKind::reward, model::HeadKind::value, model::HeadKind::labels})
    EXPECT_EQ(told({{.kind = kind, .num = 1}, 512}, {0.7, 1e9}), Steps{});
}

/// Of a run that goes on after it has exploded, the first loss is no measure.
TEST(LossGuard, TellsOfAStartThatBeginsWithAnExplodedLoss) {
  EXPECT_EQ(told({of_tokens, 512}, {1.6e6, 1.6e6}), Steps{1});
  EXPECT_EQ(told({of_tokens, 512}, {60.0, 61.0}), Steps{}) << "that may be how a model begins";
}

TEST(LossGuard, SaysWhatTheLossIsComparedWith) {
  LossGuard guard(of_tokens, 151936);
  EXPECT_FALSE(guard.add(11, 2.5));
  const auto exploded = guard.add(12, 1.6e6);
  ASSERT_TRUE(exploded);
  tests::expect_message(*exploded, "step 12",
                        {"1.6e+06", "151,936", "11.93", "2.5", "optimizer.lr"});
  const auto begun = LossGuard(of_tokens, 512).add(1, 1.6e6);
  ASSERT_TRUE(begun);
  tests::expect_message(*begun, "step 1", {"1.6e+06", "512", "6.238", "checkpoint.resume"});
}

}  // namespace
}  // namespace finetune::train::loss_guard_test
