// SPDX-License-Identifier: Apache-2.0
#include "comm/watch/hang.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace finetune::comm::hang_test {
namespace {

constexpr double timeout_s = 10;

Doing inside(std::int64_t sequence, double seconds, const char* collective = "all_gather",
             const char* axis = "fsdp") {
  return {.step = 12,
          .sequence = sequence,
          .is_inside = true,
          .collective = collective,
          .axis = axis,
          .seconds = seconds};
}

Doing busy(std::int64_t sequence, double seconds, const char* collective = "reduce_scatter",
           const char* axis = "fsdp") {
  return {.step = 11,
          .sequence = sequence,
          .is_inside = false,
          .collective = collective,
          .axis = axis,
          .seconds = seconds};
}

RankState on_main(const Doing& doing, double silent_s = 1) {
  return {.tracks = {doing, Doing()}, .silent_s = silent_s};
}

/// What is printed; empty without a verdict. Hosts are a, b, c ... of one rank each.
std::string verdict(const std::vector<RankState>& ranks) {
  std::vector<std::string> hosts;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    hosts.push_back(std::string(1, static_cast<char>('a' + rank)));
  const auto message = judge(ranks, hosts, timeout_s);
  return message ? core::to_string(*message) : "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Hang, NamesTheRankThatStoppedAnswering) {
  EXPECT_EQ(
      verdict({on_main(inside(7, 11)), on_main(busy(6, 0.5), 11), on_main(inside(7, 10.5))}),
      "step 12: rank 1 on b is late in all_gather on fsdp: no answer for 11 s, stopped or its node "
      "is dead (rank 0 on a has been inside it for 11 s, 1 other rank too long as well). Look at "
      "the nodes of the ranks named, and at their output; raise train.hang_timeout_s if such a "
      "wait is normal here.");
}

TEST(Hang, NamesTheRankThatIsBusyAndWhatItDidLast) {
  EXPECT_TRUE(has(verdict({on_main(inside(7, 11)), on_main(busy(6, 31))}),
                  "rank 1 on b is late in all_gather on fsdp: busy for 31 s in step 11 since "
                  "reduce_scatter on fsdp (rank 0 on a has been inside it for 11 s)"));
}

/// A disk that hangs is no slow rank, and looking at the rank's output would not find it.
TEST(Hang, NamesTheFilesThatARankIsBusyWith) {
  const auto at_files = [](const char* work, std::int64_t sequence) {
    Doing doing = busy(sequence, 31);
    doing.step = 0;
    doing.work = work;
    return on_main(doing);
  };
  Doing waiting = inside(7, 11, "all_reduce", "world");
  waiting.step = 0;
  EXPECT_EQ(verdict({at_files("reading of the model", 6), on_main(waiting)}),
            "before the first step: rank 0 on a is busy with files: reading of the model for 31 s "
            "(rank 1 on b has been inside it for 11 s). There is much to read, or the file system "
            "is slow or does not answer: look at the one that holds these files; raise "
            "train.hang_timeout_s if such a wait is normal here.");
  Doing reading;
  reading.work = "writing of the output folder";
  reading.seconds = 31;
  EXPECT_TRUE(has(verdict({on_main(reading), on_main(waiting)}), "files:")) << "no collective yet";
  // Whoever is late for another reason counts, and so does silence.
  const RankState late = at_files("reading of the model", 6);
  EXPECT_TRUE(has(verdict({late, on_main(busy(6, 31)), on_main(waiting)}), "2 ranks"));
  EXPECT_FALSE(has(verdict({on_main(late.tracks[0], 11), on_main(waiting)}), "files:"));
  EXPECT_FALSE(has(verdict({at_files("backward of layers.1", 6), on_main(waiting)}), "files:"));
}

TEST(Hang, IsNoneWhileNobodyWaitsTooLong) {
  EXPECT_EQ(verdict({on_main(inside(7, 9)), on_main(busy(6, 1000))}), "");
  EXPECT_EQ(verdict({on_main(busy(6, 1000)), on_main(busy(6, 1000))}), "");
}

TEST(Hang, IsNoneForSilenceAlone) {
  EXPECT_EQ(verdict({on_main(inside(7, 9)), on_main(inside(7, 9), 1000)}), "");
}

TEST(Hang, TakesNoSilentRankForAWaitingOne) {
  EXPECT_EQ(verdict({on_main(busy(6, 1)), on_main(inside(7, 1000), 1000)}), "");
}

TEST(Hang, BlamesASilentRankThatHasEnteredTheCollective) {
  EXPECT_TRUE(has(verdict({on_main(inside(7, 11)), on_main(inside(7, 1), 11)}),
                  "rank 1 on b is late in all_gather on fsdp: no answer for 11 s"));
}

TEST(Hang, BlamesTheNetworkWhenNobodyIsLate) {
  EXPECT_TRUE(has(verdict({on_main(inside(7, 11)), on_main(inside(7, 12))}),
                  "step 12: all_gather on fsdp does not finish, though no rank is late (rank 0 on "
                  "a has been inside it for 11 s, 1 other rank too long as well). It is the "
                  "network: "));
  // Some ranks leave a collective earlier than others: they have what they need.
  EXPECT_TRUE(has(verdict({on_main(inside(7, 11)), on_main(busy(7, 12))}), "It is the network"));
}

TEST(Hang, SpeaksOfTheCollectiveThatHoldsUpAllOthers) {
  // Rank 3 keeps rank 2 waiting in tp; ranks 0 and 1 wait for both in fsdp.
  const std::string text =
      verdict({on_main(inside(9, 13)), on_main(inside(9, 12)),
               on_main(inside(7, 11, "all_reduce", "tp")), on_main(busy(6, 14))});
  EXPECT_TRUE(has(text, "rank 3 on d is late in all_reduce on tp")) << text;
  EXPECT_TRUE(has(text, "rank 2 on c has been inside it for 11 s, 2 other ranks")) << text;
}

TEST(Hang, NamesRanksThatWaitForEachOtherInDifferentCollectives) {
  const std::string text =
      verdict({on_main(inside(9, 13)), on_main(inside(8, 1, "broadcast", "world"))});
  EXPECT_TRUE(has(text,
                  "rank 1 on b is missing in all_gather on fsdp: inside broadcast on world "
                  "for 1 s"))
      << text;
  EXPECT_TRUE(has(text, "wait for each other in different collectives")) << text;
}

TEST(Hang, ListsEightLateRanks) {
  std::vector<RankState> ranks = {on_main(inside(7, 11))};
  for (int i = 0; i < 10; ++i)
    ranks.push_back(on_main(busy(6, 20)));
  const std::string text = verdict(ranks);
  EXPECT_TRUE(has(text, "10 ranks are late in all_gather on fsdp: rank 1 on b: busy")) << text;
  EXPECT_TRUE(has(text, "rank 8 on i: busy")) << text;
  EXPECT_FALSE(has(text, "rank 9 on j")) << text;
  EXPECT_TRUE(has(text, "; and 2 more (")) << text;
}

TEST(Hang, SeesTheCommunicationThreadWaitWhileTheMainOneIsBusy) {
  const RankState waiting = {.tracks = {busy(3, 20), inside(50, 11)}, .silent_s = 1};
  const RankState late = {.tracks = {busy(3, 30, "barrier", "world"), busy(49, 25)}, .silent_s = 1};
  EXPECT_TRUE(has(verdict({waiting, late}),
                  "rank 1 on b is late in all_gather on fsdp: busy for 25 s in step 11 since "
                  "reduce_scatter on fsdp"));
}

TEST(Hang, PrefersTheTrackOnWhichSomebodyIsLate) {
  // All main threads are inside one all_reduce; it is a stream that keeps a stream waiting.
  const RankState waiting = {.tracks = {inside(4, 11, "all_reduce", "world"), inside(50, 11)},
                             .silent_s = 1};
  const RankState late = {.tracks = {inside(4, 11, "all_reduce", "world"), busy(49, 12)},
                          .silent_s = 1};
  const std::string text = verdict({waiting, late});
  EXPECT_TRUE(has(text, "rank 1 on b is missing in all_gather on fsdp: inside all_reduce on world"))
      << text;
}

TEST(Hang, ExpectsNothingMoreOfARankThatHasFinished) {
  const RankState finished = {
      .tracks = {busy(5, 1000), Doing()}, .silent_s = 1000, .is_finished = true};
  const std::string text =
      verdict({on_main(inside(7, 11, "finish", "world")), finished, on_main(busy(6, 31))});
  EXPECT_TRUE(has(text, "rank 2 on c is late in finish on world")) << text;
}

TEST(Hang, KnowsRanksThatNeverBegan) {
  const std::string text = verdict({{.tracks = {Doing{.sequence = 1,
                                                      .is_inside = true,
                                                      .collective = "barrier",
                                                      .axis = "world",
                                                      .seconds = 11},
                                                Doing()}},
                                    on_main(Doing())});
  EXPECT_TRUE(has(text,
                  "before the first step: rank 1 on b is late in barrier on world: busy "
                  "without any collective so far"))
      << text;
}

}  // namespace
}  // namespace finetune::comm::hang_test
