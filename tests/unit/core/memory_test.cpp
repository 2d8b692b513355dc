// SPDX-License-Identifier: Apache-2.0
#include "core/memory.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <vector>

namespace finetune::core::memory_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t gib = std::int64_t{1} << 30;

/// proc/ and sys/ of a system that has 8 GiB left and knows no groups.
class AvailableMemory : public testing::Test {
 protected:
  AvailableMemory()
      : root_(fs::temp_directory_path() / ("finetune-memory-" + std::to_string(::getpid()))) {
    write("proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n");
  }
  ~AvailableMemory() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void write(const std::string& name, std::int64_t number) const {
    write(name, std::to_string(number) + "\n");
  }
  std::int64_t available() const { return available_memory_bytes(root_); }

  const fs::path root_;
};

TEST_F(AvailableMemory, IsWhatTheSystemHasLeft) {
  EXPECT_EQ(available(), 8 * gib);
}

TEST_F(AvailableMemory, IsLessInAGroupOfVersion2) {
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/step/memory.max", "max\n");
  EXPECT_EQ(available(), 8 * gib);
  write("sys/fs/cgroup/job/step/memory.max", 3 * gib);
  EXPECT_EQ(available(), 3 * gib);
  write("sys/fs/cgroup/job/step/memory.current", gib);
  EXPECT_EQ(available(), 2 * gib);
}

TEST_F(AvailableMemory, IsThatOfTheNarrowestGroupAround) {
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/step/memory.max", 3 * gib);
  write("sys/fs/cgroup/job/memory.max", 2 * gib);
  EXPECT_EQ(available(), 2 * gib);
}

TEST_F(AvailableMemory, CountsFilesThatTheGroupCanDropAsFree) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", 3 * gib);
  write("sys/fs/cgroup/memory.current", 2 * gib);
  write("sys/fs/cgroup/memory.stat",
        "anon 5\ninactive_file " + std::to_string(gib) + "\nactive_file 7\n");
  EXPECT_EQ(available(), 2 * gib);
}

TEST_F(AvailableMemory, IsLessInAGroupOfVersion1) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory:/job\n0::/unified\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", 2 * gib);
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", gib);
  write("sys/fs/cgroup/memory/job/memory.stat", "cache 9\ntotal_inactive_file 0\n");
  EXPECT_EQ(available(), gib);
}

TEST_F(AvailableMemory, IsNoLessForAGroupThatHasNoLimit) {
  write("proc/self/cgroup", "4:memory:/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::int64_t{0x7FFFFFFFFFFFF000});
  EXPECT_EQ(available(), 8 * gib);
}

TEST_F(AvailableMemory, IsNothingWhereAGroupIsFull) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", gib);
  write("sys/fs/cgroup/memory.current", 2 * gib);
  EXPECT_EQ(available(), 0);
}

TEST_F(AvailableMemory, IsEndlessWhereTheSystemSaysNothing) {
  fs::remove_all(root_);
  EXPECT_GT(available(), std::int64_t{1} << 60);
}

TEST(Memory, OfThisSystemIsKnown) {
  EXPECT_GT(available_memory_bytes(), 1 << 20);
}

TEST(ResidentBytes, RememberTheirPeak) {
  const std::int64_t before = resident_bytes();
  EXPECT_GT(before, 100'000);
  {
    const std::vector<char> pages(64 << 20, 'x');
    EXPECT_GE(peak_resident_bytes(), before + (32 << 20)) << pages[1];
  }
  const std::int64_t now = resident_bytes();
  EXPECT_GE(peak_resident_bytes(), now);
}

}  // namespace
}  // namespace finetune::core::memory_test
