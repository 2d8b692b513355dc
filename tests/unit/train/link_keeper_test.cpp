// SPDX-License-Identifier: Apache-2.0
// What a run says of a link that becomes slow, planted where collectives end, on a clock of its
// own.
#include "train/run/detail/link_keeper.hpp"

#include <gtest/gtest.h>

#include <string>

#include "comm/activity.hpp"
#include "core/log.hpp"
#include "support/ranks.hpp"

namespace finetune::train::link_keeper_test {
namespace {

constexpr std::int64_t bytes = 1'000'000'000;

class LinkKeeperOf : public testing::Test {
 protected:
  LinkKeeperOf() {
    world_.world = tests::world();
    world_.host = "n" + std::to_string(tests::world().rank());
  }

  /// A collective of a GB that took so long on the rank that came last. Collective.
  void collect(double seconds) {
    const int rank = tests::world().rank(), size = tests::world().size();
    tests::world().activity()->link_rates().add("fsdp", 0, size, bytes,
                                                seconds * (rank + 1 == size ? 1 : 3));
  }
  std::optional<metrics::LinkReport> report(LinkKeeper& keeper) {
    now_s_ += 20;
    return keeper.report(reporter_);
  }
  /// What is said in `count` intervals of twenty seconds.
  std::string said(LinkKeeper& keeper, int count, double seconds) {
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    for (int i = 0; i < count; ++i) {
      collect(seconds);
      report(keeper);
    }
    return testing::internal::GetCapturedStderr() + testing::internal::GetCapturedStdout();
  }

  world::World world_;
  Reporter reporter_{metrics::Progress::Style::silent, 100, 1, {}};
  double now_s_ = 0;
};

TEST_F(LinkKeeperOf, ASlowLinkWarnsOnceAndSaysWhenItHasRecovered) {
  const bool is_root = tests::world().is_root();
  LinkKeeper keeper(world_, [&] { return now_s_; });
  EXPECT_EQ(said(keeper, 20, 0.1), "");
  EXPECT_EQ(said(keeper, 2, 0.5), "") << "40 s";
  const std::string warning = said(keeper, 1, 0.5);
  const std::string nodes = tests::world().size() == 1 ? "n0" : "n0, n1";
  EXPECT_EQ(
      warning.find("the links of fsdp between the ranks on " + nodes +
                   " are slow, and so is the whole run: for a minute no collective has sent "
                   "half of the usual 10 GB/s per rank, the best one now 2 GB/s") != warning.npos,
      is_root)
      << warning;
  EXPECT_EQ(said(keeper, 10, 0.5), "") << "once";
  const std::string news = said(keeper, 1, 0.1);
  EXPECT_EQ(
      news.find("the links of fsdp between the ranks on " + nodes + " have recovered") != news.npos,
      is_root)
      << news;
  EXPECT_EQ(said(keeper, 3, 0.1), "");
}

TEST_F(LinkKeeperOf, ReportsAreOfTheTimeSinceTheLastOne) {
  collect(1);
  LinkKeeper keeper(world_, [&] { return now_s_; });
  const auto before = report(keeper);
  collect(0.25);
  const auto first = report(keeper);
  const auto none = report(keeper);
  EXPECT_EQ(first.has_value(), tests::world().is_root());
  if (!first) return;
  EXPECT_TRUE(before->is_empty()) << "what was before the run is not of its steps";
  EXPECT_EQ(first->axes.at("fsdp").bytes_per_s.median, 4e9);
  EXPECT_TRUE(none->is_empty());
}

}  // namespace
}  // namespace finetune::train::link_keeper_test
