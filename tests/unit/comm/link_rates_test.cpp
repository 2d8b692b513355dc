// SPDX-License-Identifier: Apache-2.0
#include "comm/link_rates.hpp"

#include <gtest/gtest.h>

namespace finetune::comm::link_rates_test {
namespace {

constexpr std::int64_t mib = 1 << 20;

TEST(LinkRates, AreTheBestOfEachGroupSinceTheLastLook) {
  LinkRates rates;
  rates.add("fsdp", 0, 4, 8 * mib, 2);
  rates.add("fsdp", 0, 4, 8 * mib, 1);
  rates.add("fsdp", 0, 4, 8 * mib, 4);
  rates.add("tp", 0, 4, 2 * mib, 1);
  rates.add("fsdp", 4, 4, mib, 1);
  const auto taken = rates.take();
  ASSERT_EQ(taken.size(), 3);
  EXPECT_EQ(taken[0].axis, "fsdp");
  EXPECT_EQ(taken[0].num_ranks, 4);
  EXPECT_EQ(taken[0].bytes_per_s, 8 * mib);
  EXPECT_EQ(taken[1].axis, "tp");
  EXPECT_EQ(taken[2].first_rank, 4);
  EXPECT_TRUE(rates.take().empty());
  rates.add("fsdp", 0, 4, 8 * mib, 4);
  ASSERT_EQ(rates.take().size(), 1) << "of this time alone";
}

TEST(LinkRates, AreNotToldOfWhatIsTooSmallOrTookNoTime) {
  LinkRates rates;
  rates.add("fsdp", 0, 4, mib - 1, 1);
  rates.add("fsdp", 0, 4, mib, 0);
  EXPECT_TRUE(rates.take().empty());
}

}  // namespace
}  // namespace finetune::comm::link_rates_test
