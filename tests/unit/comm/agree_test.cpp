// SPDX-License-Identifier: Apache-2.0
#include "comm/agree.hpp"

#include <gtest/gtest.h>

#include "support/ranks.hpp"

namespace finetune::comm::agree_test {
namespace {

TEST(Agree, EveryRankThrowsTheFirstFailingRanksError) {
  const auto& world = tests::world();
  const int last = world.size() - 1;
  int code = 0;
  std::string message;
  try {
    agree(world, [&] {
      if (world.rank() == last) core::fail(core::ErrorKind::create, {"here", "it failed", "", ""});
    });
  } catch (const AgreedError& error) {
    code = error.exit_code();
    message = error.what();
  }
  EXPECT_EQ(code, 73);
  EXPECT_EQ(message, "here: it failed.");
}

TEST(Agree, HandsOnTheResult) {
  EXPECT_EQ(agree(tests::world(), [] { return 5; }), 5);
}

TEST(Agree, RequireEqualNamesTheRankThatDiffers) {
  const auto& world = tests::world();
  EXPECT_NO_THROW(require_equal(world, "deck", "a.toml"));
  if (world.size() == 1) return;
  std::string message;
  try {
    require_equal(world, "deck", world.rank() == 1 ? "b.toml" : "a.toml");
  } catch (const AgreedError& error) {
    message = error.what();
  }
  EXPECT_TRUE(message.starts_with("rank 1: its deck is \"b.toml\" (rank 0 has \"a.toml\")"))
      << message;
}

}  // namespace
}  // namespace finetune::comm::agree_test
