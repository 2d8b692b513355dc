// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/own_tokens.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "comm/detail/worker.hpp"
#include "comm/mpi/mpi_group.hpp"
#include "support/ranks.hpp"

namespace finetune::shard::own_tokens_test {
namespace {

TEST(OwnTokens, AreEqualNumbersButForTheLastRanks) {
  const auto counts = [](std::int64_t num_tokens) {
    std::vector<std::int64_t> counts;
    std::int64_t next = 0;
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      const OwnTokens own{.num_tokens = num_tokens, .ranks = 4, .rank = rank};
      EXPECT_EQ(own.first(), next);
      next += own.count();
      counts.push_back(own.count());
    }
    EXPECT_EQ(next, num_tokens);
    return counts;
  };
  using Counts = std::vector<std::int64_t>;
  EXPECT_EQ(counts(8), (Counts{2, 2, 2, 2}));
  EXPECT_EQ(counts(7), (Counts{2, 2, 2, 1}));
  EXPECT_EQ(counts(5), (Counts{2, 2, 1, 0}));
  EXPECT_EQ(counts(1), (Counts{1, 0, 0, 0}));
  EXPECT_EQ(counts(0), (Counts{0, 0, 0, 0}));
}

class GroupTravelOf : public testing::TestWithParam<at::ScalarType> {};

TEST_P(GroupTravelOf, GathersAllTokensAndScattersSumsOfTerms) {
  comm::MpiGroup group(tests::world(), std::make_shared<comm::Worker>(comm::Worker::Where::behind));
  // Small whole numbers: sums are exact in every dtype.
  for (const std::int64_t num_tokens : {1, 5, 7, 8, 12}) {
    const GroupTravel travel(group, num_tokens);
    const OwnTokens& own = travel.tokens();
    const at::Tensor all =
        at::arange(num_tokens * 3).remainder(17).view({num_tokens, 3}).to(GetParam());
    const at::Tensor part = all.narrow(0, own.first(), own.count());
    EXPECT_TRUE(travel.gather(part)->wait().equal(all)) << num_tokens;
    const auto started = travel.scatter(all * (group.rank() + 1));
    const auto another = travel.gather(part);
    const int ranks = group.size();
    EXPECT_TRUE(started->wait().equal(part * (ranks * (ranks + 1) / 2))) << num_tokens;
    EXPECT_TRUE(another->wait().equal(all)) << num_tokens;
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, GroupTravelOf,
                         testing::Values(at::kFloat, at::kBFloat16, at::kHalf));

}  // namespace
}  // namespace finetune::shard::own_tokens_test
