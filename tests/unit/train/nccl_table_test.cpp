// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "core/error.hpp"
#include "train/input/settings.hpp"

namespace finetune::train::nccl_table_test {
namespace {

NcclTable read(const std::string& text) {
  deck::Deck deck(text, "input.toml", {});
  deck::Table table = deck.table("nccl", "Variables for NCCL.");
  NcclTable settings;
  settings.bind(table);
  deck.finish();
  return settings;
}

TEST(NcclTable, NamesVariablesAsNcclDoes) {
  const NcclTable table = read(
      "[nccl]\nsocket_ifname = \"eth0\"\nNCCL_DEBUG = \"INFO\"\np2p_disable = true\n"
      "override_environment = true\n");
  EXPECT_TRUE(table.override_environment);
  EXPECT_EQ(table.variables, (std::map<std::string, std::string>{{"NCCL_SOCKET_IFNAME", "eth0"},
                                                                 {"NCCL_DEBUG", "INFO"},
                                                                 {"NCCL_P2P_DISABLE", "1"}}));
}

TEST(NcclTable, RefusesTwoSpellingsOfOneVariable) {
  std::string message;
  try {
    read("[nccl]\ndebug = \"INFO\"\nNCCL_DEBUG = \"WARN\"\n");
  } catch (const core::Error& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("NCCL_DEBUG is set twice"), std::string::npos) << message;
}

}  // namespace
}  // namespace finetune::train::nccl_table_test
