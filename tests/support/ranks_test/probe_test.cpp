// SPDX-License-Identifier: Apache-2.0
// What mpi_main.cpp promises to the tests that run on ranks; and, where FINETUNE_TEST_PLANTED says
// so, a failure of one rank, or ranks that never end.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>
#include <thread>

#include "support/ranks.hpp"

namespace finetune::tests {
namespace {

/// Whether this rank, the last of three, is to do so.
bool is_planted(std::string_view fault) {
  const char* planted = std::getenv("FINETUNE_TEST_PLANTED");
  return planted != nullptr && planted == fault && world().size() == 3 && world().rank() == 2;
}

TEST(Ranks, AreAWorldOfTheirOwn) {
  EXPECT_EQ(world().all_reduce(std::int64_t{1}, comm::Reduce::sum), world().size());
  EXPECT_EQ(mpi().topology().world_size, world().size());
  EXPECT_EQ(mpi().node().size(), world().size());
  EXPECT_TRUE(world().all_gather_text("x").size() == static_cast<std::size_t>(world().size()));
}

TEST(Ranks, AreAsManyAsATestNeeds) {
  REQUIRE_RANKS(2);
  EXPECT_LT(world().rank(), 2);
}

TEST(Ranks, SayWhichOfThemFails) {
  EXPECT_FALSE(is_planted("failure")) << "planted on rank " << world().rank();
}

TEST(Ranks, EndAtTheirLimit) {
  while (is_planted("hang"))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace
}  // namespace finetune::tests
