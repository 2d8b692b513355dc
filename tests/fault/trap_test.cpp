// SPDX-License-Identifier: Apache-2.0
// Links and owners in shared scratch, and data that changed between two starts.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "fault/material.hpp"

namespace finetune::tests::trap_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t newest = Material::newest;

class Trap : public testing::Test {
 protected:
  static void SetUpTestSuite() { material_ = std::make_unique<Material>("trap", 1, "node"); }
  static void TearDownTestSuite() { material_.reset(); }

  /// A folder with one file, to which the links lead.
  void SetUp() override {
    material_->restore();
    fs::remove_all(victim_);
    fs::create_directory(victim_);
    write_file(victim_ / "file", "of somebody else\n");
  }
  void TearDown() override {
    EXPECT_EQ(read_file(victim_ / "file"), "of somebody else\n");
    EXPECT_EQ(std::distance(fs::directory_iterator(victim_), fs::directory_iterator()), 1);
  }

  static const Material& material() { return *material_; }
  static inline std::unique_ptr<Material> material_;
  const fs::path victim_ = empty_folder("jobs/fault.victim");
};

TEST_F(Trap, OfATemporaryFolderIsRemovedNotFollowed) {
  fs::create_directory_symlink(victim_, material().root() / ".tmp-step-0000000005.AbCdEf");
  fs::create_directory_symlink(victim_, material().root() / ".del-step-0000000002.AbCdEf");
  material().expect_resumes_from(newest);
  EXPECT_EQ(leftovers(material().job()), std::vector<std::string>());
}

TEST_F(Trap, OfACheckpointFolderIsNotFollowed) {
  // A good checkpoint lies behind the link; the next one of that step replaces the link.
  fs::rename(material().folder(4), material().job().folder() / "elsewhere");
  fs::create_directory_symlink(material().job().folder() / "elsewhere", material().folder(4));
  fs::create_directory_symlink(victim_, material().folder(5));
  const std::string behind = read_file(material().job().folder() / "elsewhere" / "MANIFEST.json");
  material().expect_resumes_from(newest - 1);
  EXPECT_EQ(read_file(material().job().folder() / "elsewhere" / "MANIFEST.json"), behind);
  fs::remove_all(material().job().folder() / "elsewhere");
}

TEST_F(Trap, OfAFileInACheckpointMakesItNone) {
  for (const char* name : {"MANIFEST.json", "state.json", "node00000.h5"}) {
    SCOPED_TRACE(name);
    material().restore();
    // Even to the very same bytes.
    const fs::path elsewhere = material().job().folder() / "elsewhere";
    fs::remove(elsewhere);
    fs::rename(material().folder() / name, elsewhere);
    fs::create_symlink(elsewhere, material().folder() / name);
    EXPECT_EQ(verify(material().job()).exit_code, exits::unusable_input);
    material().expect_resumes_from(newest - 1);
  }
}

TEST_F(Trap, OfTheFilesOfARunIsNotWrittenThrough) {
  const std::vector<std::string> names = {"metrics.jsonl", "input.resolved.toml", ".lock",
                                          ".run.json",     "starts.jsonl",        "report.html"};
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    material().restore();
    fs::remove(material().root() / name);
    fs::create_symlink(victim_ / "file", material().root() / name);
    // Refused or replaced: TearDown looks at what the link led to.
    const Outcome outcome = run(material().job(), 1);
    EXPECT_FALSE(outcome.timed_out);
    EXPECT_LT(outcome.exit_code, 128) << outcome.text();
    EXPECT_EQ(read_file(victim_ / "file"), "of somebody else\n");
  }
}

TEST_F(Trap, OfAFolderThatAllMayWriteToIsRefused) {
  ::chmod(material().root().c_str(), 0777);
  material().expect_refused(exits::cannot_create, "output");
  ::chmod(material().root().c_str(), 01777);  // with the sticky bit nobody can rename ours
  material().expect_resumes_from(newest);
}

TEST_F(Trap, OfAFolderOfSomebodyElseIsRefused) {
  if (::getuid() != 0) GTEST_SKIP() << "giving a folder away needs root";
  ASSERT_EQ(::chown(material().root().c_str(), 65534, 65534), 0);
  material().expect_refused(exits::cannot_create, "output");
}

TEST_F(Trap, OfOneChangedByteInTheDataIsSeen) {
  const fs::path data = material().job().data();
  const fs::file_time_type time = fs::last_write_time(data);
  std::string text = read_file(data);
  text[text.find("Count")] = 'M';
  write_file(data, text);
  fs::last_write_time(data, time);
  material().expect_refused(exits::mismatch, "data.json");
}

TEST_F(Trap, OfOtherDataIsSeen) {
  const fs::path data = material().job().data();
  core::Json rows = core::parse_json(read_file(data), "data.json");
  std::swap(rows[0], rows[1]);
  write_file(data, rows.dump(1));
  material().expect_refused(exits::mismatch, "data.json");

  std::swap(rows[0], rows[1]);
  rows.push_back(rows[0]);
  write_file(data, rows.dump(1));
  material().expect_refused(exits::mismatch, "data.json");

  fs::remove(data);
  material().expect_refused(exits::unusable_input, "data.json");
}

TEST_F(Trap, OfAChangedDeckNamesTheKeys) {
  const Outcome outcome =
      material().expect_refused(exits::mismatch, "job.toml: 2 keys are not what the run in",
                                {"train.global_batch=5", "optimizer.lr=2e-3"});
  EXPECT_EQ(count(outcome.err, "train.global_batch = 5, the checkpoint has 4\n"), 1);
  EXPECT_EQ(count(outcome.err, "optimizer.lr = "), 1) << outcome.err;
}

}  // namespace
}  // namespace finetune::tests::trap_test
