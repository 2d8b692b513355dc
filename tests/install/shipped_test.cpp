// SPDX-License-Identifier: Apache-2.0
// Files that come with the program are found from an installed binary, wherever its prefix is.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.hpp"
#include "core/installation.hpp"
#include "support/folders.hpp"

namespace finetune::core::shipped_test {
namespace {

namespace fs = std::filesystem;

const fs::path prefix = tests::build_folder() / "tests/install/moved";

TEST(Installation, FindsDecksOfTheMovedPrefix) {
  for (const char* name : {"inputs/reference.toml", "inputs/recipes",
                           "inputs/quickstart/train.json", "jobscripts/env/site.sh"}) {
    const fs::path found = shipped(name, prefix / "bin");
    EXPECT_EQ(found, prefix / "share/finetune" / name);
    EXPECT_TRUE(fs::exists(found));
  }
}

TEST(Installation, DoesNotHaveWhatOnlySourcesHave) {
  EXPECT_THROW(shipped("jobscripts/local.sh", prefix / "bin"), Error);
}

}  // namespace
}  // namespace finetune::core::shipped_test
