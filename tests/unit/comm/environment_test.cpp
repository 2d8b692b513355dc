// SPDX-License-Identifier: Apache-2.0
// A part of the job's ranks as a world of its own.
#include "comm/environment.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "comm/agree.hpp"
#include "comm/watch/watchdog.hpp"
#include "core/log.hpp"
#include "support/ranks.hpp"

namespace finetune::comm::environment_test {
namespace {

constexpr double patience_s = 60;

/// The job's first rank alone, and the others from the last one down.
Communicator part_of(const Communicator& job) {
  return job.split(job.is_root() ? 0 : 1, -job.rank(), "half");
}

TEST(EnvironmentOfAPart, HasItsRanksAndNodes) {
  const Communicator part = part_of(tests::world());
  const Environment env(part);
  EXPECT_EQ(env.world().rank(), part.rank());
  EXPECT_EQ(env.world().size(), part.size());
  EXPECT_EQ(env.world().name(), "world");
  EXPECT_EQ(env.node().size(), part.size());
  EXPECT_EQ(env.topology().world_size, part.size());
  EXPECT_EQ(env.topology().num_nodes, 1);
  EXPECT_EQ(env.topology().ranks_per_node, part.size());
  EXPECT_EQ(log::is_root(), part.is_root());
  EXPECT_GE(env.cores(), 1);
}

TEST(EnvironmentOfAPart, CountsTheRanksOfGroupsInItself) {
  const Communicator part = part_of(tests::world());
  const Environment env(part);
  const auto each = env.world().split(env.world().rank(), 0, "each");
  EXPECT_EQ(each.details(0).first_rank, env.world().rank());
  EXPECT_EQ(each.dup("again").details(0).first_rank, env.world().rank());
  EXPECT_EQ(env.world().details(0).first_rank, 0);
  EXPECT_EQ(env.node().details(0).first_rank, 0);
}

TEST(EnvironmentOfAPart, HasAnActivityOfItsOwn) {
  const Communicator part = part_of(tests::world());
  const std::int64_t before = tests::mpi().activity().look(Track::main).sequence;
  const Environment env(part);
  env.world().barrier();
  EXPECT_EQ(env.activity().look(Track::main).axis, "world");
  EXPECT_EQ(tests::mpi().activity().look(Track::main).sequence, before);
}

TEST(EnvironmentOfAPart, NeedsNothingOfTheOthers) {
  const Communicator part = part_of(tests::world());
  // The first rank has as many as the others have ranks: they never meet.
  const int times = tests::world().is_root() ? tests::world().size() : 1;
  for (int i = 0; i < times; ++i) {
    const Environment env(part);
    const Watchdog watchdog(env, patience_s);
    EXPECT_EQ(env.world().all_reduce(std::int64_t{1}, Reduce::sum), part.size());
  }
}

TEST(EnvironmentOfAPart, ReportsWhatItsRanksAgreedOnAndLeavesTheJob) {
  const Communicator part = part_of(tests::world());
  for (int i = 0; i < 2; ++i) {
    const Environment env(part);
    int code = 0;
    try {
      const Watchdog watchdog(env, patience_s);
      agree(env.world(), [&] {
        core::check(!env.world().is_root(), "one rank of the part");
        return 0;
      });
    } catch (const std::exception& error) {
      code = env.report(error);
    }
    EXPECT_EQ(code, static_cast<int>(core::ErrorKind::bug));
  }
  EXPECT_EQ(tests::world().all_reduce(std::int64_t{1}, Reduce::sum), tests::world().size());
}

}  // namespace
}  // namespace finetune::comm::environment_test
