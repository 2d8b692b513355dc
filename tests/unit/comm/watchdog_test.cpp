// SPDX-License-Identifier: Apache-2.0
// Ranks that come: the watchdog lets them go on and ends with them. Those that do not come are in
// tests/parallel.
#include "comm/watch/watchdog.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "support/ranks.hpp"

namespace finetune::comm::watchdog_test {
namespace {

// Longer than any wait of these tests on a busy machine.
constexpr double patience_s = 60;

TEST(Watchdog, EndsWhereverRanksEnd) {
  for (int i = 0; i < 3; ++i) {
    const Watchdog watchdog(tests::mpi(), patience_s);
    tests::world().barrier();
  }
}

TEST(Watchdog, LeavesNoMessagesToTheNextOne) {
  // Ranks come to its end at different times, so that heartbeats are under way.
  for (int root = 0; root < tests::world().size(); ++root) {
    const Watchdog watchdog(tests::mpi(), patience_s, 0.06);
    for (int i = 0; i < 100; ++i)
      EXPECT_EQ(tests::world().all_reduce(std::int64_t{1}, Reduce::sum), tests::world().size());
  }
}

TEST(Watchdog, DoesNotWaitForOthersWhileAnExceptionUnwinds) {
  const auto fail = [] {
    const Watchdog watchdog(tests::mpi(), patience_s);
    throw std::runtime_error("only here");
  };
  // The watchdog of one rank is gone before the next rank begins to end its own.
  std::string message;
  try {
    fail();
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  EXPECT_EQ(message, "only here");
}

TEST(Watchdog, OfZeroSecondsWatchesNothing) {
  const Watchdog watchdog(tests::mpi(), 0);
}

TEST(Activity, IsToldByEveryCollectiveOfEveryCommunicator) {
  const Communicator part = tests::world().split(tests::world().rank() % 2, 0, "part");
  const Activity& activity = tests::mpi().activity();
  const std::int64_t before = activity.look(Track::main).sequence;
  part.barrier();
  EXPECT_EQ(activity.look(Track::main).collective, "barrier");
  EXPECT_EQ(activity.look(Track::main).axis, "part");
  EXPECT_FALSE(activity.look(Track::main).is_inside);
  // Parts of other sizes count the same, or ranks of small nodes would look late.
  part.all_gather_text("x");
  part.broadcast_text("x");
  part.all_reduce(std::int64_t{1}, Reduce::sum);
  float one = 1;
  part.reduce_scatter(std::vector<float>(static_cast<std::size_t>(part.size())).data(), &one, 1);
  EXPECT_EQ(activity.look(Track::main).sequence, before + 5);
}

TEST(Activity, IsNotToldWithoutMpi) {
  EXPECT_EQ(Communicator().activity(), nullptr);
}

TEST(Communicator, DupHasTheSameRanks) {
  const Communicator twin = tests::world().dup("twin");
  EXPECT_EQ(twin.rank(), tests::world().rank());
  EXPECT_EQ(twin.size(), tests::world().size());
  EXPECT_EQ(twin.name(), "twin");
  EXPECT_EQ(twin.all_reduce(std::int64_t{1}, Reduce::sum), twin.size());
}

}  // namespace
}  // namespace finetune::comm::watchdog_test
