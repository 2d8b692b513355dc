// SPDX-License-Identifier: Apache-2.0
// The decks of inputs/smoke do what they are for: the plan fits them, they run on one to four
// ranks, and the loss falls.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>

#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::smoke_test {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> smoke_decks() {
  std::vector<fs::path> decks;
  for (const auto& entry : fs::directory_iterator(source_folder() / "inputs/smoke"))
    if (entry.path().extension() == ".toml") decks.push_back(entry.path());
  std::ranges::sort(decks);
  return decks;
}

std::vector<double> losses(const fs::path& metrics) {
  static const std::regex loss(R"re("loss": ([^,]+))re");
  std::vector<double> values;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (std::regex_search(line, match, loss)) values.push_back(std::stod(match[1]));
  }
  return values;
}

/// What is on stderr besides warnings of the batch: these decks do not divide by the ranks on
/// purpose.
std::string without_batch_warnings(const std::string& err) {
  return std::regex_replace(err, std::regex("warning: train\\.global_batch = [^\n]+\n"), "");
}

class SmokeDeck : public testing::TestWithParam<fs::path> {};

TEST_P(SmokeDeck, IsPlannedWithoutRanks) {
  const Outcome plan = run_program(
      finetune_on(1, {"plan", "inputs/smoke/" + GetParam().filename().string(), "--ranks", "4"}),
      source_folder());
  EXPECT_EQ(plan.exit_code, 0) << plan.text();
  EXPECT_EQ(without_batch_warnings(plan.err), "");
}

TEST_P(SmokeDeck, LearnsOnOneAndOnFourRanks) {
  for (const int ranks : {1, 4}) {
    const fs::path output =
        empty_folder("smoke/" + GetParam().stem().string() + ".r" + std::to_string(ranks)) /
        "output";
    const Outcome outcome =
        run_program(finetune_on(ranks, {"inputs/smoke/" + GetParam().filename().string(),
                                        "train.output=" + output.string()}),
                    source_folder());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    EXPECT_EQ(ranks == 1 ? outcome.err : without_batch_warnings(outcome.err), "");
    const auto loss = losses(output / "metrics.jsonl");
    ASSERT_GE(loss.size(), 10u);
    EXPECT_LT(loss.back(), 0.9 * loss.front());
  }
}

TEST_P(SmokeDeck, RunsFromAnotherFolderAndInAnInstallation) {
  const std::string name = GetParam().stem().string();
  const fs::path elsewhere = empty_folder("smoke/elsewhere/" + name);
  const fs::path installed = elsewhere / "share/finetune/inputs/smoke";
  fs::create_directories(installed.parent_path());
  fs::copy(GetParam().parent_path(), installed, fs::copy_options::recursive);
  // What lies where one happens to be is not taken for the deck's own model.
  fs::create_directories(elsewhere / "model");
  for (const fs::path& deck : {GetParam(), installed / GetParam().filename()}) {
    const Outcome plan = run_program(finetune_on(1, {"plan", deck.string()}), elsewhere);
    EXPECT_EQ(plan.exit_code, 0) << plan.text();
  }
  const Outcome outcome = run_program(
      finetune_on(1, {(installed / GetParam().filename()).string(), "train.max_steps=1"}),
      elsewhere);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_TRUE(fs::exists(elsewhere / "build" / ("smoke-" + name) / "metrics.jsonl"));
}

INSTANTIATE_TEST_SUITE_P(Inputs, SmokeDeck, testing::ValuesIn(smoke_decks()),
                         [](const auto& info) { return info.param.stem().string(); });

}  // namespace
}  // namespace finetune::tests::smoke_test
