// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/cpus.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/cores.hpp"
#include "jobs.hpp"
#include "preflight/judge.hpp"
#include "support/folders.hpp"

namespace finetune::preflight::cpus_test {
namespace {

namespace fs = std::filesystem;

TEST(Lists, AreReadAndWrittenAsLinuxDoes) {
  EXPECT_EQ(core::parse_list("0-2,8\n"), (std::vector<int>{0, 1, 2, 8}));
  EXPECT_EQ(core::parse_list("\t3, 5"), (std::vector<int>{3, 5}));
  EXPECT_EQ(core::parse_list(""), std::vector<int>());
  EXPECT_EQ(list_text({0, 1, 2, 8}), "0-2,8");
}

/// A machine of two sockets with four cores each.
class TwoSockets : public testing::Test {
 protected:
  TwoSockets() {
    root_ = tests::build_folder() / "tests/preflight.two_sockets";
    fs::remove_all(root_);
    write("sys/devices/system/cpu/online", "0-7");
    write("sys/devices/system/node/online", "0-1");
    write("sys/devices/system/node/node0/cpulist", "0-3");
    write("sys/devices/system/node/node1/cpulist", "4-7");
    write("proc/self/status", "Name:\tx\nMems_allowed_list:\t1");
  }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  fs::path root_;
};

TEST(Cores, OfThisProcessAreFound) {
  const CpuFacts facts = cpus_here(1);
  EXPECT_FALSE(facts.cores.empty());
  EXPECT_TRUE(std::ranges::is_sorted(facts.cores));
}

TEST_F(TwoSockets, AreFound) {
  const CpuFacts facts = cpus_here(2, root_, {2, 3, 4});
  EXPECT_EQ(facts.num_online, 8);
  EXPECT_EQ(facts.num_numa, 2);
  EXPECT_EQ(facts.numa_of_cores, (std::vector<int>{0, 1}));
  EXPECT_EQ(facts.numa_of_memory, std::vector<int>{1});
}

TEST_F(TwoSockets, WithMemoryOfTheOtherOneAreWarnedOf) {
  JobFacts job = healthy_job(1, 2);
  job.ranks[0].cpu = cpus_here(1, root_, {4, 5});
  job.ranks[1].cpu = cpus_here(1, root_, {0, 1});
  const Finding finding = judge_binding(job);
  EXPECT_EQ(finding.grade(), Grade::warning);
  EXPECT_TRUE(holds(first_line(finding),
                    "n0: rank 1: its memory comes from NUMA node 1 (its cores "
                    "are on 0)"))
      << first_line(finding);
}

TEST_F(TwoSockets, ThatARankLiesAcrossAreWarnedOf) {
  write("proc/self/status", "Mems_allowed_list:\t0-1");
  JobFacts job = healthy_job(1, 2);
  job.ranks[0].cpu = cpus_here(1, root_, {0, 1, 4, 5});
  job.ranks[1].cpu = cpus_here(1, root_, {2, 3, 6, 7});
  EXPECT_TRUE(holds(first_line(judge_binding(job)), "its cores are on NUMA nodes 0-1"));
  job.is_full = false;
  EXPECT_EQ(judge_binding(job).grade(), Grade::good);
}

TEST(Binding, OfAllRanksToOneCoreIsBad) {
  JobFacts job = healthy_job(2, 3);
  EXPECT_EQ(judge_binding(job).grade(), Grade::good);
  for (std::size_t i = 3; i < 6; ++i)
    job.ranks[i].cpu.cores = {2};
  const Finding finding = judge_binding(job);
  EXPECT_EQ(finding.problems.size(), 1u);
  EXPECT_EQ(finding.grade(), Grade::bad);
  EXPECT_TRUE(holds(first_line(finding), "n1: all 3 ranks are bound to core 2"))
      << first_line(finding);
}

TEST(Binding, ThatOverlapsIsWarnedOf) {
  JobFacts job = healthy_job(1, 4);
  job.ranks[2].cpu.cores = {1, 2};
  EXPECT_TRUE(holds(first_line(judge_binding(job)), "different bindings share cores 1"));
  job = healthy_job(1, 4);
  job.ranks[2].cpu.cores = {1};
  EXPECT_TRUE(holds(first_line(judge_binding(job)), "n0: ranks 1, 2: share 1 core (1)"));
}

TEST(Binding, ToASocketThatHasACoreForEachIsGood) {
  JobFacts job = healthy_job(1, 2);
  job.ranks[0].cpu.cores = job.ranks[1].cpu.cores = {0, 1};
  EXPECT_EQ(judge_binding(job).grade(), Grade::good);
}

TEST(Binding, OfNobodyOnTooFewCoresIsOnlyWarnedOfByTheFullCheck) {
  JobFacts job = healthy_job(1, 4);
  for (Facts& facts : job.ranks) {
    facts.cpu.cores = {0, 1};
    facts.cpu.num_online = 2;
  }
  EXPECT_EQ(judge_binding(job).grade(), Grade::warning);
  job.is_full = false;
  EXPECT_EQ(judge_binding(job).grade(), Grade::note);
}

TEST(Binding, WithMoreThreadsThanCoresIsWarnedOf) {
  JobFacts job = healthy_job(1, 1);
  job.ranks[0].cpu.threads = 4;
  EXPECT_TRUE(
      holds(first_line(judge_binding(job)), "n0: rank 0: computes with 4 threads on 1 core"));
}

TEST(Load, OfOthersIsWhatTheRanksHaveNotUsed) {
  // Core 0: all of it is the ranks'; core 1: half; core 2: nobody's; core 3: a little of others.
  const auto loads = foreign_loads({0.3, 0.3, 0, 0.01}, {0.31, 0.15, 0, 0}, 0.3);
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_EQ(loads[0].core, 1);
  EXPECT_NEAR(loads[0].foreign, 0.5, 1e-9);
}

TEST(Load, OnTheCoreOfABoundRankIsBadAndNamed) {
  JobFacts job = healthy_job(2, 2);
  job.ranks[2].of_node.loads = {{0, 0.08}, {1, 0.5}};
  const Finding finding = judge_load(job);
  EXPECT_EQ(finding.grade(), Grade::bad);
  EXPECT_EQ(finding.problems.size(), 1u);
  EXPECT_TRUE(holds(first_line(finding),
                    "n1: rank 3: other processes compute on its core 1 (they take 50 % of it"))
      << first_line(finding);
}

TEST(Load, OnACoreThatARankCanLeaveIsAWarning) {
  JobFacts job = healthy_job(1, 1);
  job.ranks[0].cpu.cores = {0, 1};
  job.ranks[0].cpu.num_online = 2;
  job.ranks[0].of_node.loads = {{1, 1.0}};
  EXPECT_EQ(judge_load(job).grade(), Grade::warning);
}

}  // namespace
}  // namespace finetune::preflight::cpus_test
