// SPDX-License-Identifier: Apache-2.0
// The token cache among processes that know nothing of each other.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "data/tokens/detail/cache.hpp"
#include "unit/data/cache_setup.hpp"

namespace finetune::data::cache_alone_test {
namespace {

namespace fs = std::filesystem;
using tests::CacheSetup;
using tests::file_text;

/// The child: loads what the variable names. In the parent there is none.
TEST(TokenCacheChild, Loads) {
  const char* folder = std::getenv("FINETUNE_TEST_CACHE");
  if (folder == nullptr) GTEST_SKIP() << "the tests below start it";
  CacheSetup setup({});
  setup.cache.folder = folder;
  setup.cache.memory_bytes = 100;
  EXPECT_EQ(setup.load().dataset.num_samples(), 41);
}

constexpr std::int64_t many = 30'000;

/// Likewise, so many that it takes several blocks to keep them.
TEST(TokenCacheChild, LoadsMany) {
  const char* folder = std::getenv("FINETUNE_TEST_CACHE");
  if (folder == nullptr) GTEST_SKIP() << "the tests below start it";
  CacheSetup setup({}, many);
  setup.cache.folder = folder;
  setup.cache.keep_after_tokens = 0;
  EXPECT_EQ(setup.load().dataset.num_samples(), many);
}

/// Exit status of a child of this program that loads `setup` with a fault. The data are the same in
/// another file, so the cache's file is the same.
int run_child(const CacheSetup& setup, const std::string& fault,
              const std::string& what = "Loads") {
  const std::string command = "FINETUNE_FAULT=" + fault +
                              " FINETUNE_TEST_CACHE=" + setup.cache.folder.string() + " " +
                              fs::read_symlink("/proc/self/exe").string() +
                              " --gtest_filter=TokenCacheChild." + what + " > /dev/null 2>&1";
  return std::system(command.c_str());
}

TEST(TokenCache, AFullDiskLeavesNoFileBehind) {
  for (const char* point : {"data.write", "data.complete", "data.publish"}) {
    const CacheSetup setup({});
    EXPECT_EQ(run_child(setup, std::string(point) + ":*:1:enospc"), 0) << point;
    EXPECT_TRUE(tests::cached_in(setup.folder).empty()) << point;
  }
}

TEST(TokenCache, TwoProcessesMakingTheSameFileBothGetIt) {
  CacheSetup setup({}, 400);
  setup.cache.memory_bytes = 1000;
  std::vector<pid_t> children;
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  for (int k = 0; k < 4; ++k) {
    const pid_t child = ::fork();
    if (child == 0) {
      char byte;
      ::close(go[1]);
      (void)!::read(go[0], &byte, 1);  // all begin when the parent closes its end
      int code = 1;
      try {
        code = setup.load().dataset.num_samples() == 400 ? 0 : 2;
      } catch (...) {
      }
      ::_exit(code);
    }
    children.push_back(child);
  }
  ::close(go[0]);
  ::close(go[1]);
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(tests::cached_in(setup.folder).size(), 1u);
  EXPECT_TRUE(setup.load().was_cached);
}

TEST(TokenCache, WhatAKilledWriterLeftIsRemovedLater) {
  for (const char* point : {"data.spill", "data.write", "data.complete", "data.publish"}) {
    CacheSetup setup({});
    setup.cache.memory_bytes = 100;
    EXPECT_NE(run_child(setup, std::string(point) + ":*:1:kill"), 0) << point;
    for (const std::string& name : tests::cached_in(setup.folder)) {
      EXPECT_NE(name.find(".tmp-"), std::string::npos) << name;
      // Nobody has written to it for a long time.
      const timespec times[] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
      ::utimensat(AT_FDCWD, (setup.cache.folder / name).c_str(), times, 0);
    }
    EXPECT_FALSE(setup.load().was_cached);
    const auto names = tests::cached_in(setup.folder);
    ASSERT_EQ(names.size(), 1u) << point;
    EXPECT_TRUE(names[0].ends_with(".h5")) << names[0];
  }
}

TEST(TokenCache, WhatAKilledProcessTokenisedIsNotTokenisedAgain) {
  const CacheSetup setup({}, many);
  const std::string expected =
      tests::kept(load({}, setup.source, setup.layout, setup.options, CacheOptions{}));
  setup.source.num_read = 0;
  ASSERT_NE(run_child(setup, "tokenise.unit:*:25:kill", "LoadsMany"), 0);
  EXPECT_EQ(tests::cached_in(setup.folder).size(), 1u);
  EXPECT_EQ(tests::kept(setup.load()), expected);
  EXPECT_LT(setup.source.num_read, many - 15'000) << "blocks are of a megabyte";
  EXPECT_GE(setup.source.num_read, many - 25'000);
  const auto names = tests::cached_in(setup.folder);
  ASSERT_EQ(names.size(), 1u);
  EXPECT_TRUE(names[0].ends_with(".h5")) << names[0];
}

TEST(TokenCache, WhatAnotherWriterStillWritesStays) {
  CacheSetup setup({});
  fs::create_directories(setup.cache.folder);
  const NewCacheFile other(DataRanks{}, setup.cache.folder / "0123.h5");
  const timespec times[] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  ::utimensat(AT_FDCWD, other.path().c_str(), times, 0);
  EXPECT_FALSE(setup.load().was_cached);
  EXPECT_TRUE(fs::exists(other.path()));
}

TEST(TokenCache, IsAnOrdinaryHdf5File) {
  if (std::system("h5dump --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no h5dump here";
  CacheSetup setup({});
  const Loaded loaded = setup.load();
  const fs::path out = setup.folder.path() / "out";
  ASSERT_EQ(std::system(("h5dump -d /tokens -b LE -o " + out.string() + " " +
                         loaded.cache_file.string() + " > /dev/null")
                            .c_str()),
            0);
  const CacheFile file = CacheFile::open(loaded.cache_file);
  const auto bytes = std::as_bytes(file.arrays.tokens);
  EXPECT_EQ(file_text(out), std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace
}  // namespace finetune::data::cache_alone_test
