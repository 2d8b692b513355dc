// SPDX-License-Identifier: Apache-2.0
#include "comm/network.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace finetune::comm::network_test {
namespace {

using Nodes = std::vector<std::vector<Interface>>;

const Interface loopback = {.name = "lo", .address = "127.0.0.1", .is_loopback = true};

TEST(Network, IsTheFirstInterfaceThatAllNodesHave) {
  const Nodes nodes = {{loopback, {"eno1", "10.0.0.1"}, {"eth1", "10.1.0.1"}, {"eth2", "10.2.0.1"}},
                       {loopback, {"eth2", "10.2.0.2"}, {"eth1", "10.1.0.2"}}};
  EXPECT_EQ(common_interface(nodes), "eth1");
}

TEST(Network, PrefersInfiniBand) {
  const Nodes nodes = {{{"eth0", "10.0.0.1"}, {"ib0", "10.1.0.1"}},
                       {{"eth0", "10.0.0.2"}, {"ib0", "10.1.0.2"}}};
  EXPECT_EQ(common_interface(nodes), "ib0");
}

TEST(Network, IsNoInterfaceThatIsDownOnANode) {
  const Nodes nodes = {{{"eth0", "10.0.0.1"}, {"eth1", "10.1.0.1"}},
                       {{"eth0", "10.0.0.2", false}, {"eth1", "10.1.0.2"}}};
  EXPECT_EQ(common_interface(nodes), "eth1");
}

TEST(Network, IsNoBridgeOfContainersOrVirtualMachines) {
  const Nodes nodes = {
      {{"docker0", "172.17.0.1"}, {"virbr0", "192.168.122.1"}, {"veth12ab", "10.9.0.1"}},
      {{"docker0", "172.18.0.1"}, {"virbr0", "192.168.123.1"}, {"veth12ab", "10.9.0.2"}}};
  EXPECT_EQ(common_interface(nodes), std::nullopt);
}

TEST(Network, IsNoInterfaceWithTheSameAddressOnTwoNodes) {
  const Nodes nodes = {{{"bridge0", "10.0.0.1"}, {"eth0", "10.1.0.1"}},
                       {{"bridge0", "10.0.0.1"}, {"eth0", "10.1.0.2"}}};
  EXPECT_EQ(common_interface(nodes), "eth0");
}

TEST(Network, IsNothingWhereNoNameIsShared) {
  EXPECT_EQ(common_interface(Nodes{{{"eth0", "10.0.0.1"}}, {{"eno1", "10.0.0.2"}}}), std::nullopt);
  EXPECT_EQ(common_interface(Nodes{}), std::nullopt);
  EXPECT_EQ(common_interface(Nodes{{loopback}, {loopback}}), std::nullopt);
}

TEST(Network, InterfacesSurviveTheirText) {
  const std::vector<Interface> all = {loopback, {"eth0", "fd00::1", false}};
  const auto read = interfaces_from_text(to_text(all));
  ASSERT_EQ(read.size(), 2u);
  EXPECT_TRUE(read[0].is_loopback);
  EXPECT_TRUE(read[0].is_up);
  EXPECT_EQ(read[1].name, "eth0");
  EXPECT_EQ(read[1].address, "fd00::1");
  EXPECT_FALSE(read[1].is_up);
}

TEST(Network, OfThisMachineHasNamesAndAddresses) {
  for (const Interface& one : interfaces_here()) {
    EXPECT_FALSE(one.name.empty());
    EXPECT_FALSE(one.address.empty());
  }
}

}  // namespace
}  // namespace finetune::comm::network_test
