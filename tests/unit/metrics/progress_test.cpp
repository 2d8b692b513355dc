// SPDX-License-Identifier: Apache-2.0
#include "metrics/progress.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace finetune::metrics::progress_test {
namespace {

std::string printed(Progress progress, std::int64_t num_steps) {
  testing::internal::CaptureStdout();
  for (std::int64_t step = 1; step <= num_steps; ++step)
    progress.step({.step = step, .loss = 1.5, .lr = 2e-5, .tokens_per_s = 1234, .step_s = 2});
  progress.pause();
  return testing::internal::GetCapturedStdout();
}

TEST(HumanSeconds, UsesTheUnitsAPersonWould) {
  EXPECT_EQ(human_seconds(0), "0 s");
  EXPECT_EQ(human_seconds(59.4), "59 s");
  EXPECT_EQ(human_seconds(59.6), "1 min 00 s");
  EXPECT_EQ(human_seconds(200), "3 min 20 s");
  EXPECT_EQ(human_seconds(3599.6), "1 h 00 min");
  EXPECT_EQ(human_seconds(3720), "1 h 02 min");
  EXPECT_EQ(human_seconds(360000), "100 h 00 min");
}

TEST(Progress, PrintsTheFirstTheLastAndEveryFewSteps) {
  const std::string text = printed(Progress(Progress::Style::lines, 7, 3), 7);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  for (const char* step : {"step 1/7", "step 3/7", "step 6/7", "step 7/7"})
    EXPECT_NE(text.find(step), std::string::npos) << text;
  EXPECT_NE(text.find("step 3/7  loss 1.5000  lr 2.00e-05  1234 tokens/s  8 s left\n"),
            std::string::npos)
      << text;
}

TEST(Progress, SaysTheEpochBehindTheStep) {
  testing::internal::CaptureStdout();
  Progress(Progress::Style::lines, 8, 1).step({.step = 5, .step_s = 1, .epoch = 1.25});
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(text.starts_with("step 5/8  epoch 1.25  loss ")) << text;
}

TEST(Progress, SaysWhatWasTrainedSoFarAndTheMfuWhereItIsKnown) {
  testing::internal::CaptureStdout();
  Progress(Progress::Style::lines, 8, 1)
      .step(
          {.step = 5, .step_s = 1, .total_samples = 1200, .total_tokens = 3456789, .mfu = 0.4125});
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find(" tokens/s  41.2 % MFU  3 s left  so far 1,200 samples, 3,456,789 tokens\n"),
            std::string::npos)
      << text;
}

/// What jobscripts/local.sh says about the terminal, for as long as this lives.
class Terminal {
 public:
  explicit Terminal(const char* columns) { ::setenv("FINETUNE_TERMINAL_COLUMNS", columns, 1); }
  ~Terminal() { ::unsetenv("FINETUNE_TERMINAL_COLUMNS"); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
};

TEST(Progress, DrawsOneBarAndEndsItsLine) {
  const Terminal terminal("100");
  const std::string text = printed(Progress(Progress::Style::bar, 2, 1), 2);
  EXPECT_NE(text.find("[========        ] step 1/2"), std::string::npos) << text;
  EXPECT_NE(text.find("[================] step 2/2"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST(Progress, CutsTheBarToTheTerminal) {
  const Terminal terminal("30");
  const std::string text = printed(Progress(Progress::Style::bar, 1, 1), 1);
  EXPECT_EQ(text, "\r\x1b[K[================] step 1/1  \n") << text;
}

TEST(Progress, DrawsABarOnlyWhereAPersonSeesIt) {
  {
    const Terminal terminal("80");
    EXPECT_EQ(Progress::style_of_stdout(), Progress::Style::bar);
  }
  const Terminal terminal("0");
  EXPECT_EQ(Progress::style_of_stdout(), Progress::Style::lines);
}

TEST(Progress, OfOtherRanksIsSilent) {
  EXPECT_EQ(printed(Progress(Progress::Style::silent, 3, 1), 3), "");
}

}  // namespace
}  // namespace finetune::metrics::progress_test
