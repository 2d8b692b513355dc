// SPDX-License-Identifier: Apache-2.0
// Disks that are full, read-only or failing: a save is lost, never a checkpoint, and a run that
// could not save at all does not begin.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "fault/harness.hpp"

namespace finetune::tests::disk_test {
namespace {

namespace fs = std::filesystem;

constexpr int ranks = 2;
constexpr int num_steps = 6;

class Disk : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    whole_ = std::make_unique<WholeRun>("fault.disk.whole", ranks, num_steps);
  }
  static void TearDownTestSuite() { whole_.reset(); }

  static Job job(const std::string& name) {
    return {"fault.disk." + name, save_every_step(num_steps)};
  }
  static const WholeRun& whole() { return *whole_; }

 private:
  static inline std::unique_ptr<WholeRun> whole_;
};

/// Whether this process may mount file systems that nobody else sees.
bool can_mount() {
  return ::getuid() == 0 &&
         run_program({"unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"}, "/").exit_code ==
             0;
}

/// Runs `words` with a file system of its own at the output folder of `job`, which afterwards holds
/// a copy of what was left on it.
Outcome run_on_tmpfs(const Job& job, const std::string& options,
                     const std::vector<std::string>& words) {
  fs::create_directories(job.output());
  std::vector<std::string> all = {
      "unshare",
      "-m",
      "sh",
      "-c",
      "mount -t tmpfs -o " + options +
          " tmpfs output && { \"$@\"; code=$?; cp -a output left; exit $code; }",
      "sh"};
  all.insert(all.end(), words.begin(), words.end());
  Outcome outcome = run_program(all, job.folder());
  fs::remove(job.output());
  fs::rename(job.folder() / "left", job.output());
  return outcome;
}

TEST_F(Disk, ThatIsFullKeepsTheOlderCheckpointsAndEndsARunThatCannotSave) {
  if (!can_mount()) GTEST_SKIP() << "mounting a small file system needs root";
  const Job full = job("full");
  // Room for two checkpoints and a half.
  const Outcome outcome = run_on_tmpfs(full, "size=4200k", command(full, ranks, {}));
  EXPECT_EQ(outcome.exit_code, exits::io) << outcome.text();
  EXPECT_EQ(count(outcome.err, "warning: the checkpoint of step 3 could not be saved: "), 1)
      << outcome.text();
  EXPECT_EQ(count(outcome.err, "3 saves in a row have failed"), 1) << outcome.text();
  EXPECT_EQ(steps_on_disk(full), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(leftovers(full), std::vector<std::string>());
  whole().expect_good_restart(full, outcome.out, num_steps);
}

TEST_F(Disk, ThatIsFullFromTheBeginningEndsTheRun) {
  if (!can_mount()) GTEST_SKIP() << "mounting a small file system needs root";
  const Job full = job("full.first");
  // The check before a run would refuse it; the disk may also fill up just after that.
  const Outcome outcome =
      run_on_tmpfs(full, "size=1m", command(full, ranks, {}, {"train.preflight=off"}));
  EXPECT_EQ(outcome.exit_code, exits::io) << outcome.text();
  EXPECT_EQ(steps_on_disk(full), std::vector<std::int64_t>());
  EXPECT_EQ(leftovers(full), std::vector<std::string>());
}

TEST_F(Disk, ThatIsReadOnlyIsRefusedBeforeTheFirstStep) {
  if (!can_mount()) GTEST_SKIP() << "mounting a read-only file system needs root";
  const Job refused = job("readonly");
  const Outcome outcome = run_on_tmpfs(refused, "ro", command(refused, ranks, {}));
  EXPECT_EQ(outcome.exit_code, exits::cannot_create) << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: output"), 1) << outcome.text();
  EXPECT_EQ(count(outcome.err, "Read-only file system"), 1) << outcome.text();
  EXPECT_EQ(count(outcome.out, "step 1/"), 0) << outcome.text();
}

TEST_F(Disk, WithAFileWhereTheFolderShouldBeIsRefusedBeforeTheFirstStep) {
  const Job refused = job("file");
  write_file(refused.output(), "a file\n");
  const Outcome outcome = run(refused, ranks);
  EXPECT_EQ(outcome.exit_code, exits::cannot_create) << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: output"), 1) << outcome.text();
  EXPECT_EQ(read_file(refused.output()), "a file\n");

  fs::remove(refused.output());
  const Outcome below = run(refused, 1, {}, {"train.output=data.json/output"});
  EXPECT_EQ(below.exit_code, exits::cannot_create) << below.text();
}

TEST_F(Disk, OfSomebodyElseIsRefusedBeforeTheFirstStep) {
  const Job refused = job("permission");
  std::vector<std::string> words = command(refused, 1, {});
  if (::getuid() == 0) {
    words.insert(words.begin(), {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"});
    words.insert(words.begin(), {"env", "HOME=/tmp"});
  } else {
    fs::permissions(refused.folder(), fs::perms::owner_read | fs::perms::owner_exec);
  }
  const Outcome outcome = run_program(words, refused.folder());
  fs::permissions(refused.folder(), fs::perms::owner_all);
  EXPECT_EQ(outcome.exit_code, exits::cannot_create) << outcome.text();
  EXPECT_EQ(count(outcome.err, "Permission denied"), 1) << outcome.text();
}

struct Failure {
  std::string name;
  std::string fault;  ///< as FINETUNE_SHIM_FAIL has it
};

std::ostream& operator<<(std::ostream& out, const Failure& failure) {
  return out << failure.fault;
}

class FailingCall : public Disk, public testing::WithParamInterface<Failure> {};

TEST_P(FailingCall, CostsOneCheckpointAndNothingElse) {
  const Job failing = job(GetParam().name);
  const Outcome outcome =
      run(failing, ranks, with_shim(failing, {"FINETUNE_SHIM_FAIL=" + GetParam().fault}));
  EXPECT_EQ(outcome.exit_code, exits::done) << outcome.text();
  EXPECT_EQ(count(outcome.err, " could not be saved: "), 1) << outcome.text();
  EXPECT_EQ(count(outcome.err, "the checkpoint of step 3 could not be saved: "), 1)
      << outcome.text();
  EXPECT_EQ(count(outcome.out, "saved output/step-0000000003"), 0) << outcome.text();
  EXPECT_EQ(count(outcome.out, "saved output/step-0000000004"), 1) << outcome.text();
  EXPECT_EQ(verify(failing).exit_code, exits::done);
  whole().expect_same_end(failing);
}

// Calls of the third save; the folder's name tells which. Renaming it is tried in two ways.
INSTANTIATE_TEST_SUITE_P(
    Calls, FailingCall,
    testing::Values(Failure{"Mkdir", "mkdir:0:3:ENOSPC:.tmp-step-"},
                    Failure{"Create", "create:0:1:EIO:.tmp-step-0000000003"},
                    Failure{"Fallocate", "fallocate:0:1:ENOSPC:.tmp-step-0000000003"},
                    Failure{"FirstWrite", "write:0:1:EIO:.tmp-step-0000000003"},
                    Failure{"WriteOfAnotherRank", "write:1:9:ENOSPC:.tmp-step-0000000003"},
                    Failure{"FsyncOfAnotherRank", "fsync:1:1:EIO:.tmp-step-0000000003"},
                    Failure{"FsyncOfTheManifest", "fsync:0:3:EIO:.tmp-step-0000000003"},
                    Failure{"RenameOfTheFolder", "rename:0:1+:EIO:/step-0000000003"}),
    [](const auto& info) { return info.param.name; });

TEST_F(Disk, ThatWritesByHalvesAndIsInterruptedHoldsTheSameBytes) {
  const Job slow = job("short");
  const Outcome outcome =
      run(slow, ranks, with_shim(slow, {"FINETUNE_SHIM_FAIL=write:1:7:EINTR,write:*:*:SHORT"}));
  EXPECT_EQ(outcome.exit_code, exits::done) << outcome.text();
  EXPECT_EQ(count(outcome.err, " could not be saved: "), 0) << outcome.text();
  EXPECT_EQ(verify(slow).exit_code, exits::done);
  whole().expect_same_end(slow);
}

TEST_F(Disk, ThatFailsEndsTheRunIfTheDeckSaysSo) {
  const Job failing = job("stop");
  const Outcome outcome = run(
      failing, ranks, with_shim(failing, {"FINETUNE_SHIM_FAIL=fsync:1:1:EIO:.tmp-step-0000000003"}),
      {"checkpoint.on_error=stop"});
  EXPECT_EQ(outcome.exit_code, exits::io) << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.text();
  EXPECT_EQ(count(outcome.err, "Input/output error"), 1) << outcome.text();
  EXPECT_EQ(steps_on_disk(failing), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(leftovers(failing), std::vector<std::string>());
  whole().expect_good_restart(failing, outcome.out);
}

}  // namespace
}  // namespace finetune::tests::disk_test
