// SPDX-License-Identifier: Apache-2.0
#include "trace/critical_path.hpp"

#include <gtest/gtest.h>

#include "unit/trace/events.hpp"

namespace finetune::trace::critical_path_test {
namespace {

using trace::tests::collective;
using trace::tests::rank;
using trace::tests::span;

constexpr std::int64_t ms = 1'000'000;

TEST(CriticalPath, OfOneRankIsItsWork) {
  const CriticalPath path =
      critical_path({rank(0, 0,
                          {span("step 1", 0, 10 * ms), span("forward of layers.0", 1 * ms, 4 * ms),
                           span("optimizer", 6 * ms, 8 * ms)})});
  EXPECT_DOUBLE_EQ(path.seconds, 10e-3);
  EXPECT_NEAR(path.work_s.at(0).at("forward"), 3e-3, 1e-9);
  EXPECT_NEAR(path.work_s.at(0).at("optimizer"), 2e-3, 1e-9);
  EXPECT_NEAR(path.work_s.at(0).at("other"), 5e-3, 1e-9);
  EXPECT_TRUE(path.collectives_s.empty());
}

/// Rank 1 computes for 8 ms, rank 0 for 2, then both for 1 after a collective of 1.
TEST(CriticalPath, GoesThroughTheRankThatTheOthersWaitFor) {
  const std::vector<RankTrace> ranks = {
      rank(0, 0,
           {span("step 1", 0, 10 * ms), span("forward of layers.0", 0, 2 * ms),
            collective(1, 2 * ms, 9 * ms), span("optimizer", 9 * ms, 10 * ms)}),
      rank(1, 0,
           {span("step 1", 0, 9 * ms + ms / 2), span("forward of layers.0", 0, 8 * ms),
            collective(1, 8 * ms, 9 * ms), span("optimizer", 9 * ms, 9 * ms + ms / 2)})};
  const CriticalPath path = critical_path(ranks);
  EXPECT_NEAR(path.work_s.at(1).at("forward"), 8e-3, 1e-9);
  EXPECT_NEAR(path.work_s.at(0).at("optimizer"), 1e-3, 1e-9);
  EXPECT_FALSE(path.work_s.at(0).contains("forward"));
  EXPECT_NEAR(path.collectives_s.at("all_reduce world"), 1e-3, 1e-9);
  EXPECT_EQ(path.longest_wait.rank, 0);
  EXPECT_EQ(path.longest_wait.for_rank, 1);
  EXPECT_NEAR(path.longest_wait.seconds, 6e-3, 1e-9);
  const std::string text = describe(path, ranks, {});
  EXPECT_NE(text.find("rank 1 on node1 works: forward 0.0080 s"), std::string::npos) << text;
  EXPECT_NE(text.find("longest wait: rank 0 for rank 1 on node1, 0.0060 s, in all_reduce world of "
                      "layers.1"),
            std::string::npos)
      << text;
}

/// The thread waits for a stream; what the stream carries is slow on all ranks.
TEST(CriticalPath, NamesACollectiveThatIsSlowForItself) {
  const auto one = [](int number) {
    return rank(
        number, 0,
        {span("step 1", 0, 10 * ms), span("forward of layers.0", 0, 3 * ms),
         collective(1, 1 * ms, 9 * ms, "stream of fsdp", "fsdp"),
         span("wait of fsdp", 3 * ms, 9 * ms), span("backward of layers.0", 9 * ms, 10 * ms)});
  };
  const CriticalPath path = critical_path({one(0), one(1)});
  EXPECT_NEAR(path.collectives_s.at("all_reduce fsdp"), 8e-3, 1e-9 + 2e-3);
  double work = 0;
  for (const auto& [rank, parts] : path.work_s)
    for (const auto& [kind, seconds] : parts)
      work += seconds;
  EXPECT_NEAR(work + path.collectives_s.at("all_reduce fsdp"), 10e-3, 1e-9);
}

/// Two ranks alike, whose streams are busy all the time: nothing would be shorter without the
/// computation, and nobody waits for the other.
TEST(CriticalPath, GoesAlongAStreamThatIsBusy) {
  const auto one = [](int number) {
    RankTrace made =
        rank(number, 0, {span("step 1", 0, 1000 * ms), span("forward of layers.0", 0, 600 * ms)});
    for (std::int64_t n = 1; n <= 10; ++n) {
      made.events.push_back(
          collective(n, (n - 1) * 100 * ms, n * 100 * ms, "stream of fsdp", "fsdp"));
      made.events.back().args["queued_us"] = static_cast<double>(n - 1) * 100e3;
    }
    made.events.push_back(span("wait of fsdp", 600 * ms, 1000 * ms));
    return made;
  };
  const CriticalPath path = critical_path({one(0), one(1)});
  EXPECT_NEAR(path.collectives_s.at("all_reduce fsdp"), 1.0, 1e-6);
  EXPECT_EQ(path.longest_wait.seconds, 0);
}

/// What differs less than clocks do is nothing.
TEST(CriticalPath, AccusesNobodyOfWhatClocksLeave) {
  const std::vector<RankTrace> ranks = {
      rank(0, 0, {span("step 1", 0, 10 * ms), collective(1, 2 * ms, 9 * ms)}),
      rank(1, 0, {span("step 1", 0, 10 * ms), collective(1, 2 * ms + 5'000, 9 * ms)})};
  EXPECT_EQ(critical_path(ranks, {.left_us = 6}).longest_wait.seconds, 0);
  EXPECT_NEAR(critical_path(ranks, {.left_us = 4}).longest_wait.seconds, 5e-6, 1e-12);
}

/// Spans within spans count once.
TEST(CriticalPath, CountsTheInnermostSpan) {
  const CriticalPath path =
      critical_path({rank(0, 0,
                          {span("step 1", 0, 10 * ms), span("validation", 1 * ms, 9 * ms),
                           span("forward of layers.0", 2 * ms, 5 * ms)})});
  EXPECT_NEAR(path.work_s.at(0).at("forward"), 3e-3, 1e-9);
  EXPECT_NEAR(path.work_s.at(0).at("validation"), 5e-3, 1e-9);
  EXPECT_NEAR(path.work_s.at(0).at("other"), 2e-3, 1e-9);
}

/// What it adds up to is the time of the steps, whatever the ranks did.
TEST(CriticalPath, AddsUpToTheSteps) {
  std::vector<Event> a = {span("step 1", 0, 100 * ms)}, b = {span("step 1", 0, 100 * ms)};
  std::int64_t at = 0;
  for (std::int64_t n = 1; n <= 20; ++n) {
    const std::int64_t of_a = (n * 7 % 5) * ms / 2, of_b = (n * 3 % 7) * ms / 2;
    const std::int64_t end = at + std::max(of_a, of_b) + ms / 4;
    a.push_back(span("forward of x", at, at + of_a));
    a.push_back(collective(n, at + of_a, end));
    b.push_back(span("forward of x", at, at + of_b));
    b.push_back(collective(n, at + of_b, end));
    at = end;
  }
  const CriticalPath path = critical_path({rank(0, 0, a), rank(1, 0, b)});
  double sum = 0;
  for (const auto& [rank, parts] : path.work_s)
    for (const auto& [kind, seconds] : parts)
      sum += seconds;
  for (const auto& [name, seconds] : path.collectives_s)
    sum += seconds;
  EXPECT_NEAR(sum, 100e-3, 1e-9);
  EXPECT_NEAR(path.collectives_s.at("all_reduce world"), 20 * 0.25e-3, 1e-9);
}

}  // namespace
}  // namespace finetune::trace::critical_path_test
