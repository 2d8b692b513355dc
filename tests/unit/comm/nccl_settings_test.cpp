// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_settings.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/nccl/detail/nccl_names.hpp"

namespace finetune::comm::nccl_settings_test {
namespace {

TEST(NcclSettings, TakeVariablesInLowerCaseWithoutThePrefixOrAsTheyAre) {
  EXPECT_EQ(nccl_variable("socket_ifname"), "NCCL_SOCKET_IFNAME");
  EXPECT_EQ(nccl_variable("NCCL_SOCKET_IFNAME"), "NCCL_SOCKET_IFNAME");
  EXPECT_EQ(nccl_variable("nccl_debug"), "NCCL_DEBUG");
}

TEST(NcclSettings, SetWhatTheEnvironmentDoesNot) {
  const auto plan =
      plan_nccl_exports({.variables = {{"NCCL_DEBUG", "INFO"}, {"NCCL_ALGO", "Ring"}}},
                        {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}});
  EXPECT_EQ(plan.to_set, (Variables{{"NCCL_DEBUG", "INFO"}}));
  EXPECT_TRUE(plan.warnings.empty());
}

TEST(NcclSettings, LeaveTheEnvironmentAsItIsAndSaySo) {
  const auto plan =
      plan_nccl_exports({.variables = {{"NCCL_DEBUG", "INFO"}}}, {{"NCCL_DEBUG", "WARN"}});
  EXPECT_TRUE(plan.to_set.empty());
  ASSERT_EQ(plan.warnings.size(), 1u);
  EXPECT_EQ(plan.warnings[0],
            "[nccl]: NCCL_DEBUG = \"INFO\" of the deck is not used (the environment sets it to "
            "\"WARN\"). Unset it there, or set nccl.override_environment = true.");
}

TEST(NcclSettings, OverrideTheEnvironmentIfTheDeckSaysSo) {
  const auto plan =
      plan_nccl_exports({.variables = {{"NCCL_DEBUG", "INFO"}}, .overrides_environment = true},
                        {{"NCCL_DEBUG", "WARN"}});
  EXPECT_EQ(plan.to_set, (Variables{{"NCCL_DEBUG", "INFO"}}));
  EXPECT_TRUE(plan.warnings.empty());
}

TEST(NcclSettings, WarnOfNamesThatNcclDoesNotKnow) {
  const auto plan = plan_nccl_exports({.variables = {{"NCCL_SOCKET_IFNAM", "eth0"}}},
                                      {{"NCCL_P2P_DISABLED", "1"}, {"NCCL_ELEPHANT", "1"}});
  ASSERT_EQ(plan.warnings.size(), 3u);
  EXPECT_EQ(plan.warnings[0],
            "[nccl]: NCCL knows no variable NCCL_SOCKET_IFNAM (it ignores it silently). "
            "Did you mean NCCL_SOCKET_IFNAME?");
  EXPECT_EQ(plan.warnings[1],
            "environment: NCCL knows no variable NCCL_ELEPHANT (it ignores it silently). "
            "Remove it, unless a plugin reads it.");
  EXPECT_EQ(plan.warnings[2],
            "environment: NCCL knows no variable NCCL_P2P_DISABLED (it ignores it silently). "
            "Did you mean NCCL_P2P_DISABLE?");
}

TEST(NcclSettings, KnowTheVariablesOfInstallations) {
  EXPECT_TRUE(
      plan_nccl_exports({}, {{"NCCL_VERSION", "2.28.3-1"}, {"NCCL_HOME", "/x"}}).warnings.empty());
}

TEST(NcclNames, AreSortedAndEachThereOnce) {
  const auto& names = nccl_names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_TRUE(std::binary_search(names.begin(), names.end(), "NCCL_IB_HCA"));
}

TEST(NcclInterface, OfSomeRanksOnlyIsWarnedOfNamingTheFirstWithoutIt) {
  const auto warning = warn_if_partly_set(3, 4, 2);
  ASSERT_TRUE(warning);
  EXPECT_NE(warning->find("rank 2 has no NCCL_SOCKET_IFNAME (3 of 4 ranks have it"),
            std::string::npos)
      << *warning;
  EXPECT_FALSE(warn_if_partly_set(0, 4, 0));
  EXPECT_FALSE(warn_if_partly_set(4, 4, 4));
}

TEST(NcclSettings, SumsThatKeepTheirOrderAreNotMadeBySwitches) {
  const NcclSettings ordered{.keeps_order_of_sums = true};
  EXPECT_EQ(plan_nccl_exports(ordered, {}).to_set.at("NCCL_ALGO"), "^NVLS,NVLSTree");
  EXPECT_TRUE(plan_nccl_exports({}, {}).to_set.empty());
}

TEST(NcclSettings, AnAlgorithmThatSomebodyChoseStays) {
  const NcclSettings ordered{.keeps_order_of_sums = true};
  EXPECT_TRUE(plan_nccl_exports(ordered, {{"NCCL_ALGO", "NVLS"}}).to_set.empty());
  const NcclSettings chosen{.variables = {{"NCCL_ALGO", "Ring"}}, .keeps_order_of_sums = true};
  EXPECT_EQ(plan_nccl_exports(chosen, {}).to_set.at("NCCL_ALGO"), "Ring");
}

}  // namespace
}  // namespace finetune::comm::nccl_settings_test
