// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/run_folder.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/host.hpp"
#include "support/errors.hpp"
#include "support/messages.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::run_folder_test {
namespace {

namespace fs = std::filesystem;

/// Exit code of what `f` throws, 0 if nothing.
template <typename F>
int exit_code(F&& f) {
  try {
    f();
  } catch (const core::Error& error) {
    return error.exit_code();
  }
  return 0;
}

class RunFolderTest : public testing::Test {
 protected:
  fs::path root() const { return folder_.path() / "output"; }

  tests::SharedFolder folder_;
};

TEST_F(RunFolderTest, IsMadeForItsOwnerAndLeavesNothingOfTheTrial) {
  const RunFolder folder(root(), Access::owner);
  struct stat status;
  ASSERT_EQ(::stat(root().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_EQ(std::distance(fs::directory_iterator(root()), fs::directory_iterator()), 1);  // .lock
}

TEST_F(RunFolderTest, IsHeldByOneJobAtATime) {
  auto first = std::make_unique<RunFolder>(root(), Access::owner);
  EXPECT_EQ(exit_code([&] { RunFolder second(root(), Access::owner); }), 73);
  first.reset();
  EXPECT_EQ(exit_code([&] { RunFolder third(root(), Access::owner); }), 0);
}

/// Where the file system has no locks, the name in `.lock` is all that there is.
class WithoutLocks : public RunFolderTest {
 protected:
  WithoutLocks() {
    ::setenv("FINETUNE_FAULT", "run.lock:*:*:flip", 1);
    core::fault::reset();
    fs::create_directory(root());
  }
  ~WithoutLocks() override {
    ::unsetenv("FINETUNE_FAULT");
    ::unsetenv("SLURM_JOB_ID");
    core::fault::reset();
  }
  void name(const std::string& owner) const { tests::write_file(root() / ".lock", owner); }
  std::string refusal() const {
    return finetune::tests::refusal_of(core::ErrorKind::create,
                                       [&] { RunFolder(root(), Access::owner); });
  }
};

TEST_F(WithoutLocks, WhoeverIsNamedHoldsTheFolder) {
  name("job 12 on node3 (process 4)");
  finetune::tests::expect_facts(refusal(), root().string(),
                                {"job 12 on node3 (process 4)", "locks"});
  name(fmt::format("process {} on {}", ::getppid(), core::host_name()));
  EXPECT_NE(refusal(), "") << "it runs";
  ::setenv("SLURM_JOB_ID", "13", 1);
  name("job 12 on node3 (process 4)");
  EXPECT_NE(refusal(), "") << "another job";
  name(fmt::format("job 13 on {} (process {})", core::host_name(), ::getppid()));
  EXPECT_NE(refusal(), "") << "another step of the same job, which runs";
}

TEST_F(WithoutLocks, JobsThatEndedHoldNothing) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  name(fmt::format("process {} on {}", child, core::host_name()));
  EXPECT_EQ(refusal(), "") << "it is gone";
  EXPECT_EQ(refusal(), "") << "the one before ended in good order";
  ::setenv("SLURM_JOB_ID", "12", 1);
  name("job 12 on node3 (process 4)");
  EXPECT_EQ(refusal(), "") << "the scheduler started the job anew";
  name(fmt::format("job 11 on {} (process {})", core::host_name(), child));
  EXPECT_EQ(refusal(), "") << "it is gone";
  {
    const RunFolder folder(root(), Access::owner);
    EXPECT_EQ(tests::read_file(root() / ".lock"),
              fmt::format("job 12 on {} (process {})", core::host_name(), ::getpid()));
  }
  EXPECT_EQ(tests::read_file(root() / ".lock"), "");
}

TEST_F(RunFolderTest, RefusesStartsThatLeadNowhere) {
  for (int start = 0; start < 4; ++start) {
    RunFolder folder(root(), Access::owner);
    EXPECT_EQ(exit_code([&] { folder.begin(7, "deck", 3); }), start < 3 ? 0 : 79) << start;
  }
  // Another deck, another step, no limit, or a checkpoint begin the count anew.
  EXPECT_EQ(exit_code([&] { RunFolder(root(), Access::owner).begin(7, "deck", 0); }), 0);
  EXPECT_EQ(exit_code([&] { RunFolder(root(), Access::owner).begin(7, "changed", 3); }), 0);
  for (int start = 0; start < 6; ++start) {
    RunFolder folder(root(), Access::owner);
    EXPECT_EQ(exit_code([&] { folder.begin(8, "deck", 3); }), 0) << start;
    if (start % 2 == 1) folder.note_progress();
  }
}

TEST_F(RunFolderTest, KeepsTheIdOfItsRun) {
  std::string id;
  {
    RunFolder folder(root(), Access::owner);
    id = folder.run_id();
    EXPECT_FALSE(id.empty());
    folder.begin(0, "deck", 3);
  }
  EXPECT_EQ(RunFolder(root(), Access::owner).run_id(), id);
  RunFolder folder(root(), Access::owner);
  EXPECT_EQ(folder.continue_line({"abc"}).run_id, "abc");
  EXPECT_EQ(folder.run_id(), "abc");
  EXPECT_NE(folder.continue_line({}).run_id, id);
}

TEST_F(RunFolderTest, RemembersWhatWasChosenForLaterStarts) {
  EXPECT_TRUE(noted_choice(root()).is_null());
  const core::Json choice = {{"sharding", "NO_SHARD"}, {"ranks", {2, 2, 1}}};
  {
    RunFolder folder(root(), Access::owner);
    folder.set_choice(choice);
    folder.begin(0, "deck", 3);
  }
  EXPECT_EQ(noted_choice(root()), choice);
  // A start that chose nothing, and a checkpoint, leave it.
  RunFolder folder(root(), Access::owner);
  folder.begin(0, "deck", 3);
  folder.note_progress();
  EXPECT_EQ(noted_choice(root()), choice);
}

TEST_F(RunFolderTest, NamesWhatIsNoPartOfARunBeforeItsFirstStart) {
  EXPECT_TRUE(foreign_entries(root()).empty());
  fs::create_directories(root() / "photos");
  tests::write_file(root() / "notes.txt", "");
  tests::write_file(root() / "slurm-12.out", "");
  EXPECT_EQ(foreign_entries(root()), (std::vector<std::string>{"notes.txt", "photos"}));
  const RunFolder folder(root(), Access::owner);
  EXPECT_TRUE(foreign_entries(root()).empty()) << "it was said at the first start";
}

TEST_F(RunFolderTest, ANoteThatCannotBeReadIsNone) {
  fs::create_directory(root());
  tests::write_file(root() / ".run.json", "{\"id\": 7");
  RunFolder folder(root(), Access::owner);
  EXPECT_EQ(exit_code([&] { folder.begin(0, "deck", 1); }), 0);
}

TEST_F(RunFolderTest, RefusesFoldersOfOthersFilesAndFoldersThatAllMayWriteInto) {
  const auto refuses = [&] { return exit_code([&] { RunFolder(root(), Access::owner); }) == 73; };
  tests::write_file(root(), "a file");
  EXPECT_TRUE(refuses());
  fs::remove(root());
  fs::create_directory(root());
  fs::permissions(root(), fs::perms::all);
  EXPECT_TRUE(refuses());
  fs::permissions(root(), fs::perms::owner_all);
  EXPECT_FALSE(refuses());
  if (::geteuid() != 0) return;  // nobody else can give a folder away
  ASSERT_EQ(::chown(root().c_str(), 65534, 65534), 0);
  EXPECT_TRUE(refuses());
}

}  // namespace
}  // namespace finetune::checkpoint::run_folder_test
