// SPDX-License-Identifier: Apache-2.0
// What ranks find out together: each rank stands for a node.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "core/file.hpp"
#include "jobs.hpp"
#include "preflight/detail/clocks.hpp"
#include "preflight/detail/cpus.hpp"
#include "preflight/detail/disk.hpp"
#include "preflight/detail/files.hpp"
#include "preflight/detail/links.hpp"
#include "support/folders.hpp"
#include "support/ranks.hpp"

namespace finetune::preflight::ranks_test {
namespace {

namespace fs = std::filesystem;
using tests::world;

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (int i = 0; i < world().size(); ++i)
    all.push_back("n" + std::to_string(i));
  return all;
}

/// A folder of this rank's test, which every rank has made once this returns.
fs::path folder_of(const std::string& name) {
  const fs::path folder = tests::build_folder() / "tests" / (name + std::to_string(world().size()));
  if (world().is_root()) {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  world().barrier();
  return folder;
}

TEST(Clocks, ThatDifferAreFoundByPassingMessages) {
  const auto clock = [] { return wall_clock_s() + 1000.0 * world().rank(); };
  const double offset = clock_offset_s(world(), clock);
  EXPECT_NEAR(offset, 1000.0 * world().rank(), 1.0) << "on however busy a machine";
  EXPECT_NEAR(clock_offset_s(world()), 0, 1.0);
}

TEST(Links, AreMeasuredBetweenAllNodes) {
  const auto own = measure_links(world());
  const auto links = gather_links(world(), own);
  EXPECT_EQ(std::ssize(own), world().size() - 1);
  if (!world().is_root()) return;
  EXPECT_EQ(std::ssize(links), world().size() * (world().size() - 1));
  for (const Link& link : links) {
    EXPECT_NE(link.from, link.to);
    EXPECT_GT(link.gbit_per_s, 0);
    EXPECT_GT(link.latency_us, 0);
  }
}

TEST(Files, ThatAreTheVeryFileAreNotReadByTheQuickCheck) {
  const fs::path folder = folder_of("preflight.same.");
  if (world().is_root()) std::ofstream(folder / "a") << "1234";
  world().barrier();
  const Finding finding = check_files(world(), names(), {folder}, true);
  if (world().is_root()) {
    EXPECT_EQ(finding.text, world().size() == 1
                                ? "1 model and data file, 4 B"
                                : "1 model and data file, 4 B, one and the same on all nodes");
  }
}

TEST(Files, OfWhichOneNodeSeesAnotherOneNameIt) {
  if (world().size() < 3) GTEST_SKIP() << "needs 3 ranks";
  const fs::path folder = folder_of("preflight.other.");
  // Every rank has rank 0's path; a link that is not there names what only this process has.
  const fs::path own = folder / ("of_rank_" + std::to_string(world().rank()));
  std::ofstream(own) << (world().rank() == 2 ? "5678" : "1234");
  world().barrier();
  for (const bool is_quick : {true, false}) {
    // "/proc/self/fd/N" leads to the rank's own file under one name.
    const core::File file(own, core::File::Mode::read);
    const int descriptor = ::fcntl(file.descriptor(), F_DUPFD, 200);
    const Finding finding =
        check_files(world(), names(), {"/proc/self/fd/" + std::to_string(descriptor)}, is_quick);
    ::close(descriptor);
    if (!world().is_root()) continue;
    EXPECT_EQ(finding.problems.size(), 1u);
    EXPECT_TRUE(holds(first_line(finding), "n2: /proc/self/fd/")) << first_line(finding);
    EXPECT_TRUE(holds(first_line(finding), "has another content")) << first_line(finding);
  }
}

TEST(Disk, IsSeenByAllAndLeftClean) {
  const fs::path folder = folder_of("preflight.disk.");
  for (const std::int64_t bytes : {0, 1000}) {
    const DiskFacts facts = look_at_disk(world(), folder / "to/come", bytes);
    EXPECT_EQ(facts.folder, folder.string());
    EXPECT_EQ(facts.problem, "");
    EXPECT_TRUE(facts.sees_root);
    EXPECT_EQ(facts.write_gb_per_s > 0, bytes > 0);
    world().barrier();
    EXPECT_TRUE(fs::is_empty(folder));
    world().barrier();
  }
}

TEST(Load, OfOthersIsAPartOfEachCore) {
  const auto loads = foreign_loads(world(), 0.05);
  EXPECT_TRUE(world().is_root() || loads.empty());
  for (const CoreLoad& load : loads) {
    EXPECT_GT(load.foreign, 0);
    EXPECT_LE(load.foreign, 1);
  }
}

}  // namespace
}  // namespace finetune::preflight::ranks_test
