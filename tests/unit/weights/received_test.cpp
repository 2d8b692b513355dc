// SPDX-License-Identifier: Apache-2.0
// What came with a model's folder about its files.
#include "weights/received.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/file_hash.hpp"
#include "core/hash.hpp"
#include "unit/weights/support.hpp"

namespace finetune::weights::received_test {
namespace {

namespace fs = std::filesystem;

// Of "abc", as the standards print them; of git: `printf abc | git hash-object --stdin`.
constexpr const char* sha256_of_abc =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* git_name_of_abc = "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f";

class Received : public ::testing::Test {
 protected:
  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((folder_ / file).parent_path());
    core::write_text_atomically(folder_ / file, text);
  }

  std::vector<std::string> differences(const fs::path& folder) {
    std::vector<std::string> all;
    for (const KnownHash& known : known_hashes(folder))
      all.push_back(known.file + ": " + difference(folder, known));
    return all;
  }

  const TestFolder made_;
  const fs::path folder_ = made_.path();
};

TEST_F(Received, HashesAreThoseOfTheStandards) {
  write("a", "abc");
  const core::File file(folder_ / "a", core::File::Mode::read);
  EXPECT_EQ(core::sha256_of(file), sha256_of_abc);
  EXPECT_EQ(core::git_name_of(file), git_name_of_abc);
}

TEST_F(Received, ADownloadToAFolderHasItsNotes) {
  write("a", "abc");
  write("b", "abd");
  write("sub/c", "abc");
  const std::string notes = ".cache/huggingface/download/";
  write(notes + "a.metadata", std::string("commit\n") + sha256_of_abc + "\n1.5\n");
  write(notes + "b.metadata", std::string("commit\n") + git_name_of_abc + "\n1.5\n");
  write(notes + "sub/c.metadata", std::string("commit\n") + git_name_of_abc + "\n1.5\n");
  write(notes + "gone.metadata", std::string("commit\n") + git_name_of_abc + "\n1.5\n");
  const auto found = differences(folder_);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], "a: ");
  EXPECT_NE(found[1].find("the hub when it was downloaded says f2ba8f84ab5c"), std::string::npos)
      << found[1];
  EXPECT_EQ(found[2], "sub/c: ");
  EXPECT_TRUE(unfinished_downloads(folder_).empty());
  write(notes + "xyz.incomplete", "ab");
  EXPECT_EQ(unfinished_downloads(folder_).size(), 1u);
}

TEST_F(Received, TheCacheNamesFilesByTheirContent) {
  const std::string commit(40, '1');
  write(std::string("blobs/") + sha256_of_abc, "abc");
  write(std::string("blobs/") + git_name_of_abc, "abX");
  write("refs/main", commit + "\n");
  fs::create_directories(folder_ / "snapshots" / commit);
  for (const auto& [name, blob] :
       {std::pair("good", sha256_of_abc), std::pair("bad", git_name_of_abc)})
    fs::create_symlink(std::string("../../blobs/") + blob, folder_ / "snapshots" / commit / name);
  EXPECT_EQ(version_in_cache(folder_), folder_ / "snapshots" / commit);
  const auto found = differences(version_in_cache(folder_));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NE(found[0].find("bad: 3 B hashes to"), std::string::npos) << found[0];
  EXPECT_EQ(found[1], "good: ");
  write("blobs/abc.incomplete", "a");
  EXPECT_EQ(unfinished_downloads(version_in_cache(folder_)).size(), 1u);
}

TEST_F(Received, TheVersionIsTheOneThatIsMeantOrThereAlone) {
  EXPECT_EQ(version_in_cache(folder_), folder_) << "no cache";
  fs::create_directories(folder_ / "snapshots" / std::string(40, 'a'));
  EXPECT_EQ(version_in_cache(folder_), folder_ / "snapshots" / std::string(40, 'a'));
  fs::create_directories(folder_ / "snapshots" / std::string(40, 'b'));
  try {
    version_in_cache(folder_);
    FAIL() << "two versions, and none of them is meant";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::input);
    EXPECT_NE(std::string(error.what()).find("holds several versions"), std::string::npos)
        << error.what();
  }
  write("refs/main", std::string(40, 'b'));
  EXPECT_EQ(version_in_cache(folder_), folder_ / "snapshots" / std::string(40, 'b'));
  write("config.json", "{}");
  EXPECT_EQ(version_in_cache(folder_), folder_) << "a model is one, whatever else lies there";
}

TEST_F(Received, ListsAreComparedLineByLine) {
  write("a", "abc");
  write("SHA256SUMS", std::string("# by hand\n") + sha256_of_abc + "  a\n");
  write("XXH128SUMS", core::file_fingerprint(folder_ / "a") + "  a\n");
  for (const std::string& one : differences(folder_))
    EXPECT_EQ(one, "a: ");
  EXPECT_EQ(differences(folder_).size(), 2u);
  for (const char* wrong : {"nonsense", "../a", "/a"}) {
    write("SHA256SUMS", std::string(sha256_of_abc) + "  a\n" +
                            (wrong[0] == 'n' ? "" : sha256_of_abc + std::string("  ")) + wrong);
    EXPECT_THROW(known_hashes(folder_), core::Error) << wrong;
  }
}

}  // namespace
}  // namespace finetune::weights::received_test
