// SPDX-License-Identifier: Apache-2.0
// Wrong starts that no deck can describe: ranks that disagree, command lines, files that are
// missing or must not be written.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::command_line_test {
namespace {

namespace fs = std::filesystem;

const fs::path decks = source_folder() / "tests/decks";
const std::string program = build_folder() / "finetune";

/// One rank for each of `first` and `second`.
Outcome run_two(const std::vector<std::string>& first, const std::vector<std::string>& second) {
  std::vector<std::string> words = mpirun(1);
  words.push_back(program);
  words.insert(words.end(), first.begin(), first.end());
  words.insert(words.end(), {":", "-n", "1", program});
  words.insert(words.end(), second.begin(), second.end());
  return run_program(words, decks);
}

void expect_refused(const Outcome& outcome, int exit_code, const std::string& message) {
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, exit_code);
  EXPECT_EQ(count(outcome.err, message), 1) << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.text();
}

TEST(Ranks, RefuseDecksThatDiffer) {
  expect_refused(run_two({"one.toml"}, {"two.toml"}), 78,
                 "error: rank 1: its command line is \"two.toml\" (rank 0 has "
                 "\"one.toml\"). Start every rank with the same program, deck and arguments.");
}

TEST(Ranks, RefuseValuesThatDiffer) {
  expect_refused(
      run_two({"bad/unknown_key.toml", "train.seed=1"}, {"bad/unknown_key.toml", "train.seed=2"}),
      78, "rank 1: its command line is \"bad/unknown_key.toml train.seed=2\"");
}

TEST(Ranks, RefuseAnOptionThatOneOfThemHas) {
  expect_refused(run_two({"bad/unknown_key.toml"}, {"bad/unknown_key.toml", "--fast"}), 64,
                 "error: finetune: unknown option --fast");
}

class OnRanks : public testing::TestWithParam<int> {
 protected:
  static Outcome run(const std::vector<std::string>& arguments) {
    return run_program(finetune_on(GetParam(), arguments), decks);
  }
};
INSTANTIATE_TEST_SUITE_P(Counts, OnRanks, testing::Values(1, 2), testing::PrintToStringParamName());

TEST_P(OnRanks, RefuseADeckThatIsNotThere) {
  expect_refused(run({"not_there.toml"}), 78,
                 "error: not_there.toml: cannot be opened (No such file or directory). Check the "
                 "path and its permissions.");
}

TEST_P(OnRanks, TakeTrainForACommandAndNoOtherWord) {
  expect_refused(run({"train", "bad/unknown_key.toml"}), 78, "Did you mean 'sharding'?");
  expect_refused(run({"validate", "bad/unknown_key.toml"}), 64,
                 "error: finetune: there is no command 'validate' (and no file of that name). ");
}

TEST_P(OnRanks, RefuseAFolderForADeck) {
  expect_refused(run({"bad"}), 78,
                 "error: bad: is a folder (a file is needed). Name the file itself.");
}

TEST_P(OnRanks, RefuseAnEmptyCommandLine) {
  expect_refused(
      run({}), 64,
      "error: finetune: no deck is named (a deck says what to train). These are the commands:\n");
}

TEST_P(OnRanks, RefuseAnUnknownOption) {
  expect_refused(
      run({"--fast"}), 64,
      "error: finetune: unknown option --fast (the first word is a command or a deck). These "
      "are the commands:\n");
}

TEST_P(OnRanks, RefuseAnOutputFolderTheyMayNotWriteTo) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const fs::path folder = empty_folder("read_only.r" + std::to_string(GetParam()));
  fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  expect_refused(
      run({"bad/sample_cut_and_reported.toml", "train.output=" + (folder / "output").string()}), 73,
      "/output: cannot be created (Permission denied). Set train.output to a folder you may write "
      "to.");
  expect_refused(run({"bad/sample_cut_and_reported.toml", "train.output=" + folder.string()}), 73,
                 "/metrics.jsonl: cannot be created (Permission denied).");
  fs::permissions(folder, fs::perms::owner_all);
}

TEST(Commands, RefuseWhatIsMissingOrWrong) {
  const auto run = [](const std::vector<std::string>& arguments) {
    return run_program(finetune_on(1, arguments), decks);
  };
  expect_refused(run({"plan"}), 64, "error: finetune: deck is required. Try finetune --help.");
  expect_refused(run({"plan", "bad/unknown_key.toml"}), 78, "Did you mean 'sharding'?");
  expect_refused(run({"verify", "not_there"}), 65, "error: not_there: ");
  expect_refused(run({"verify", "bad"}), 65, "error: bad: there is no checkpoint (");
  expect_refused(run({"export", "bad", "out"}), 65, "error: bad: there is no checkpoint (");
  expect_refused(run({"generate", "not_there", "Hello"}), 65, "error: not_there");
}

}  // namespace
}  // namespace finetune::tests::command_line_test
