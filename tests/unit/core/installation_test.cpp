// SPDX-License-Identifier: Apache-2.0
#include "core/installation.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.hpp"
#include "support/errors.hpp"

namespace finetune::core::installation_test {
namespace {

namespace fs = std::filesystem;

class Installation : public testing::Test {
 protected:
  Installation() {
    fs::remove_all(top_);
    fs::create_directories(top_ / "bin");
  }
  ~Installation() override { fs::remove_all(top_); }

  const fs::path top_ = fs::temp_directory_path() / "finetune_installation_test";
};

TEST_F(Installation, OfAPrefixComesBeforeTheSources) {
  fs::create_directories(top_ / "inputs");
  EXPECT_EQ(shipped("inputs", top_ / "bin"), top_ / "inputs");
  fs::create_directories(top_ / "share/finetune/inputs");
  EXPECT_EQ(shipped("inputs", top_ / "bin"), top_ / "share/finetune/inputs");
}

TEST_F(Installation, WithoutTheFileNamesBothPlaces) {
  const std::string text =
      tests::error_of(ErrorKind::environment, [&] { shipped("inputs/machines", top_ / "bin"); });
  EXPECT_NE(text.find((top_ / "share/finetune/inputs/machines").string()), std::string::npos);
  EXPECT_NE(text.find((top_ / "inputs/machines").string()), std::string::npos);
}

TEST_F(Installation, OfThisProgramIsLookedForBesideItsBinary) {
  const fs::path binary = fs::read_symlink("/proc/self/exe");
  const fs::path folder = binary.parent_path().filename();
  EXPECT_EQ(shipped(folder), binary.parent_path());
}

}  // namespace
}  // namespace finetune::core::installation_test
