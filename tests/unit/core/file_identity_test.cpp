// SPDX-License-Identifier: Apache-2.0
#include "core/file_identity.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace finetune::core::file_identity_test {
namespace {

namespace fs = std::filesystem;

TEST(FileIdentity, IsOfTheFileAndNotOfItsNameOrItsBytes) {
  const fs::path folder = fs::path(testing::TempDir()) / "finetune_file_identity";
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::ofstream(folder / "file") << "bytes";
  fs::create_symlink("file", folder / "link");
  fs::copy_file(folder / "file", folder / "copy");
  EXPECT_FALSE(file_identity(folder / "file").empty());
  EXPECT_EQ(file_identity(folder / "link"), file_identity(folder / "file"));
  EXPECT_NE(file_identity(folder / "copy"), file_identity(folder / "file"));
  EXPECT_EQ(file_identity(folder / "gone"), "");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace finetune::core::file_identity_test
