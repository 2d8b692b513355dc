// SPDX-License-Identifier: Apache-2.0
#include "trace/clocks.hpp"

#include <gtest/gtest.h>

#include "unit/trace/events.hpp"

namespace finetune::trace::clocks_test {
namespace {

using trace::tests::collective;
using trace::tests::rank;

TEST(Clocks, AreAlignedByTheEndsOfCollectives) {
  constexpr std::int64_t ahead = 40'000'000;
  std::vector<Event> here, there;
  for (std::int64_t n = 1; n <= 9; ++n) {
    here.push_back(collective(n, n * 1'000'000, n * 1'000'000 + 500));
    // One is noticed late.
    there.push_back(collective(n, n * 1'000'000 + 100 + ahead,
                               n * 1'000'000 + 500 + ahead + (n == 4 ? 90'000 : 0)));
  }
  std::vector<RankTrace> ranks = {rank(0, 1'000, here), rank(1, 1'000, there)};
  const Alignment made = align_clocks(ranks);
  EXPECT_EQ(ranks[0].base_ns, 1'000);
  EXPECT_EQ(ranks[1].base_ns, 1'000 - ahead);
  EXPECT_EQ(made.largest_shift_us, 40'000);
  EXPECT_EQ(made.left_us, 0);
  EXPECT_EQ(made.num_collectives, 9u);
  EXPECT_TRUE(made.alone.empty());
}

TEST(Clocks, OfOneHostAreOne) {
  std::vector<RankTrace> ranks = {rank(0, 0, {collective(1, 0, 100)}),
                                  rank(1, 0, {collective(1, 0, 150)})};
  ranks[1].host = ranks[0].host;
  const Alignment made = align_clocks(ranks);
  EXPECT_EQ(ranks[1].base_ns, 0);
  EXPECT_EQ(made.largest_shift_us, 0);
  EXPECT_NEAR(made.left_us, 0.05, 1e-9);
}

/// 0 and 1 share an axis, 1 and 2 another.
TEST(Clocks, AreAlignedOverOtherRanks) {
  std::vector<RankTrace> ranks = {
      rank(0, 0, {collective(1, 0, 100)}),
      rank(1, 0, {collective(1, 0, 150), collective(1, 200, 300, "stream of tp", "tp", 1)}),
      rank(2, 0, {collective(1, 200, 370, "stream of tp", "tp", 1)}),
      rank(3, 0, {collective(1, 0, 5, "stream of tp", "tp", 3)})};
  const Alignment made = align_clocks(ranks);
  EXPECT_EQ(ranks[1].base_ns, -50);
  EXPECT_EQ(ranks[2].base_ns, -120);
  EXPECT_EQ(ranks[3].base_ns, 0);
  EXPECT_EQ(made.alone, std::vector<int>{3});
}

}  // namespace
}  // namespace finetune::trace::clocks_test
