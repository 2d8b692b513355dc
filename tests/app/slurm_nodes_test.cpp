// SPDX-License-Identifier: Apache-2.0
#include "slurm_nodes.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/error.hpp"

namespace finetune::app::slurm_nodes_test {
namespace {

namespace fs = std::filesystem;

const std::string site =
    "cpu*|4|256|2|515000|1-12:00:00|(null)\n"
    "cpu*|900|128+|2|257000+|1-12:00:00|(null)\n"
    "gpu|6|96|1|1030000|3-00:00:00|(null)\n"
    "gpu|2|64|1|515000|3-00:00:00|gpu:a100:4(S:0-1),nvme:1\n"
    "debug|1|8|1|1|30:00|gpu\n"
    "free|1|8|1|64000|infinite|gpu:8\n";

TEST(Sinfo, TellsTheCommonestNodesOfTheDefaultPartition) {
  const auto machine = read_sinfo(site, "", Gpus::of_no_use);
  ASSERT_TRUE(machine.has_value());
  EXPECT_EQ(machine->cores_per_node, 64) << "cores, not their hardware threads";
  EXPECT_NEAR(machine->node_memory_gib, 257000 / 1024.0, 1e-9);
  EXPECT_EQ(machine->max_walltime_hours, 36);
  EXPECT_EQ(machine->gpus_per_node, 0);
}

TEST(Sinfo, TellsTheNodesWithGpusWhereTheyAreWanted) {
  const auto machine = read_sinfo(site, "gpu", Gpus::wanted);
  ASSERT_TRUE(machine.has_value());
  EXPECT_EQ(machine->gpus_per_node, 4);
  EXPECT_EQ(machine->cores_per_node, 64);
  EXPECT_EQ(machine->max_walltime_hours, 72);
  EXPECT_EQ(read_sinfo(site, "gpu", Gpus::of_no_use)->cores_per_node, 96);
  EXPECT_EQ(read_sinfo(site, "free", Gpus::wanted)->gpus_per_node, 8);
}

TEST(Sinfo, WhatASiteDoesNotSayStaysOpen) {
  const auto machine = read_sinfo(site, "debug", Gpus::wanted);
  ASSERT_TRUE(machine.has_value());
  EXPECT_EQ(machine->node_memory_gib, 0) << "1 MB is Slurm's word for nothing";
  EXPECT_EQ(machine->max_walltime_hours, 0.5);
  EXPECT_EQ(machine->gpus_per_node, 1);
  EXPECT_EQ(read_sinfo(site, "free", Gpus::wanted)->max_walltime_hours, 0);
  EXPECT_FALSE(read_sinfo(site, "night", Gpus::wanted).has_value());
  EXPECT_FALSE(read_sinfo("nonsense\n||\n", "", Gpus::wanted).has_value());
}

/// A PATH whose sinfo prints `text`, or which has none.
class Path {
 public:
  explicit Path(const std::string& text) : folder_(fs::path(testing::TempDir()) / "sinfo") {
    fs::create_directories(folder_);
    if (!text.empty()) {
      std::ofstream(folder_ / "sinfo") << "#!/bin/sh\ncat <<'END'\n" << text << "END\n";
      fs::permissions(folder_ / "sinfo", fs::perms::owner_all);
    }
    const char* before = std::getenv("PATH");
    before_ = before != nullptr ? before : "";
    // Only what the script needs: this machine may have a Slurm.
    fs::create_symlink("/bin/cat", folder_ / "cat");
    ::setenv("PATH", folder_.c_str(), 1);
  }
  ~Path() {
    ::setenv("PATH", before_.c_str(), 1);
    fs::remove_all(folder_);
  }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

 private:
  fs::path folder_;
  std::string before_;
};

TEST(Slurm, IsAskedBySinfoOfThePath) {
  const Path path(site);
  EXPECT_EQ(ask_slurm("", Gpus::of_no_use)->cores_per_node, 64);
  EXPECT_EQ(ask_slurm("gpu", Gpus::wanted)->gpus_per_node, 4);
  EXPECT_THROW(ask_slurm("night", Gpus::wanted), core::Error);
  EXPECT_THROW(ask_slurm("a'; rm b", Gpus::wanted), core::Error);
}

TEST(Slurm, ThatIsNotThereSaysNothing) {
  const Path path("");
  EXPECT_FALSE(ask_slurm("gpu", Gpus::wanted).has_value());
}

}  // namespace
}  // namespace finetune::app::slurm_nodes_test
