// SPDX-License-Identifier: Apache-2.0
#include "metrics/links.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/ranks.hpp"

namespace finetune::metrics::links_test {
namespace {

/// Two ranks on each node.
std::vector<std::string> hosts() {
  std::vector<std::string> all;
  for (int rank = 0; rank < tests::world().size(); ++rank)
    all.push_back("n" + std::to_string(rank / 2 + 1));
  return all;
}

TEST(Links, AreAsFastAsTheRankSawThatCameLast) {
  const int rank = tests::world().rank(), size = tests::world().size();
  const std::vector<comm::LinkRate> own = {{"fsdp", 0, size, 1e9 / 3 * (rank + 1)}};
  const auto rates = gather_links(tests::world(), own, hosts());
  if (rank > 0) return;
  ASSERT_EQ(rates.size(), 1);
  EXPECT_EQ(rates[0].rate.axis, "fsdp");
  EXPECT_EQ(rates[0].rate.first_rank, 0);
  EXPECT_EQ(rates[0].rate.num_ranks, size);
  EXPECT_EQ(rates[0].rate.bytes_per_s, 1e9 / 3 * size) << "to the last bit";
  EXPECT_EQ(rates[0].nodes, size > 2 ? "n1, n2" : "n1");
}

TEST(Links, OfSeveralGroupsAreToldApart) {
  const int rank = tests::world().rank(), size = tests::world().size();
  std::vector<comm::LinkRate> own = {{"tp", rank, 1, 2.0 + rank}};
  if (rank == 0) own.push_back({"cp", rank, 1, 7});
  const auto rates = gather_links(tests::world(), own, hosts());
  if (rank > 0) return;
  ASSERT_EQ(rates.size(), static_cast<std::size_t>(size + 1));
  EXPECT_EQ(rates.front().rate.axis, "cp");
  EXPECT_EQ(rates.back().rate.bytes_per_s, 1.0 + size);
  EXPECT_EQ(rates.back().nodes, hosts().back());
}

TEST(Links, WithoutCollectivesAreNotThere) {
  EXPECT_TRUE(gather_links(tests::world(), {}, hosts()).empty());
}

}  // namespace
}  // namespace finetune::metrics::links_test
