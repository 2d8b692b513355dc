// SPDX-License-Identifier: Apache-2.0
#include "core/file_lock.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

namespace finetune::core::file_lock_test {
namespace {

namespace fs = std::filesystem;

class FileLock : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::path(testing::TempDir()) / "finetune_file_lock";
    fs::remove(path_);
  }
  void TearDown() override { fs::remove(path_); }

  File open() const { return {path_, File::Mode::create_or_write}; }

  fs::path path_;
};

TEST_F(FileLock, OfOneKeepsOutOthersUntilItIsClosed) {
  const File other = open();
  {
    const File first = open();
    EXPECT_EQ(is_locked_by_another(other), false);
    EXPECT_EQ(try_lock(first.descriptor(), Lock::exclusive), Locked::yes);
    EXPECT_EQ(is_locked_by_another(first), false) << "its own lock is no other's";
    EXPECT_EQ(is_locked_by_another(other), true);
    EXPECT_EQ(try_lock(other.descriptor(), Lock::exclusive), Locked::held_by_another);
  }
  EXPECT_EQ(is_locked_by_another(other), false);
  EXPECT_TRUE(wait_for_lock(other.descriptor(), Lock::exclusive));
}

TEST_F(FileLock, MayBeSharedUntilOneWantsItAlone) {
  (void)open();
  const auto reopened = [&] {
    const int descriptor = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    return File(descriptor, path_);
  };
  const File first = reopened();
  {
    const File second = reopened();
    EXPECT_EQ(try_lock(first.descriptor(), Lock::shared), Locked::yes);
    EXPECT_EQ(try_lock(second.descriptor(), Lock::shared), Locked::yes);
    EXPECT_EQ(try_lock(first.descriptor(), Lock::exclusive), Locked::held_by_another);
  }
  EXPECT_EQ(try_lock(first.descriptor(), Lock::exclusive), Locked::yes);
}

TEST_F(FileLock, EndsWithItsProcess) {
  const File other = open();
  const pid_t child = ::fork();
  if (child == 0) {
    const int descriptor = ::open(path_.c_str(), O_RDWR);
    ::_exit(try_lock(descriptor, Lock::exclusive) == Locked::yes ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child had the lock";
  EXPECT_EQ(try_lock(other.descriptor(), Lock::exclusive), Locked::yes);
}

}  // namespace
}  // namespace finetune::core::file_lock_test
