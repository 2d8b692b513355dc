// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/files.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "jobs.hpp"
#include "preflight/detail/disk.hpp"
#include "preflight/detail/program.hpp"
#include "support/folders.hpp"

namespace finetune::preflight::files_test {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  Files() : folder_(tests::build_folder() / "tests/preflight.files") {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "inner");
  }
  fs::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  fs::path folder_;
};

TEST_F(Files, OfAFolderAreListedByName) {
  write("b", "2"), write("a", "1"), write(".hidden", "3");
  const auto files = list_files({folder_, folder_ / "missing"});
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].path, (folder_ / "a").string());
  EXPECT_EQ(files[1].size_bytes, 1);
  EXPECT_EQ(files[2].size_bytes, -1);
}

TEST_F(Files, OfOtherContentHaveAnotherHash) {
  const std::string text(100'000, 'x');
  std::string other = text;
  other[50'000] = 'y';
  const auto first = sampled_hash(write("a", text), 1 << 20);
  EXPECT_EQ(first, sampled_hash(write("b", text), 1 << 20));
  EXPECT_NE(first, sampled_hash(write("c", other), 1 << 20));
}

TEST_F(Files, ThatAreLargeAreSampledAtBothEndsAndBetween) {
  std::string text(4 << 20, 'x');
  const auto first = sampled_hash(write("a", text), 0);
  for (const std::size_t at : {std::size_t{0}, text.size() / 31 * 15 + 9, text.size() - 1}) {
    std::string other = text;
    other[at] = 'y';
    EXPECT_NE(first, sampled_hash(write("b", other), 0)) << at;
  }
  EXPECT_NE(first, sampled_hash(write("b", text + "x"), 0));
}

TEST_F(Files, ThatDifferAreNamedWithTheNode) {
  const std::vector<SeenFile> usual = {
      {"/m/a", 5, "", "h"}, {"/m/b", 5, "", "h"}, {"/m/c", 5, "", "h"}};
  const std::vector<SeenFile> odd = {
      {"/m/a", 5, "", "h"}, {"/m/b", 6, "", "h"}, {"/m/c", 5, "", "i"}, {"/m/d", 1, "", "j"}};
  const auto problems = compare(usual, "n1", odd, "n7");
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_TRUE(
      holds(core::to_string(problems[0].message), "n7: /m/b: has 6 bytes (n1 has 5 bytes)"));
  EXPECT_TRUE(holds(core::to_string(problems[1].message), "n7: /m/c: has another content"));
  EXPECT_TRUE(holds(core::to_string(problems[2].message), "n7: /m/d: is there (n1 has no such"));
  EXPECT_TRUE(holds(core::to_string(compare(usual, "n1", {}, "n7")[0].message),
                    "n7: /m/a: cannot be read there"));
}

TEST_F(Files, OfOneProcessAreNotCompared) {
  const Finding finding = check_files({}, {"n0"}, {write("a", "123")}, false);
  EXPECT_EQ(finding.text, "1 model and data file, 3 B");
  EXPECT_EQ(finding.grade(), Grade::good);
}

TEST_F(Files, OfAProbeAreGoneAfterwards) {
  const DiskRates rates = try_disk(folder_, 1 << 20);
  EXPECT_GT(rates.write_gb_per_s, 0);
  EXPECT_GT(rates.read_gb_per_s, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  EXPECT_THROW(try_disk(folder_ / "missing", 1), core::Error);
}

TEST_F(Files, OfAnOutputFolderThatIsToComeAreThoseOfTheOneAbove) {
  EXPECT_EQ(existing_folder(folder_ / "inner/not/yet"), folder_ / "inner");
  EXPECT_GT(free_bytes(folder_), 0);
}

TEST(Program, HasAHash) {
  EXPECT_EQ(program_hash().size(), 32u);
}

}  // namespace
}  // namespace finetune::preflight::files_test
