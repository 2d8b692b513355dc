// SPDX-License-Identifier: Apache-2.0
// A run continues from a checkpoint that an earlier program wrote in format version 1.
#include <gtest/gtest.h>

#include <sstream>

#include "restart/job.hpp"
#include "support/folders.hpp"

namespace finetune::tests::version_one_test {
namespace {

namespace fs = std::filesystem;

const fs::path golden = source_folder() / "tests/golden/checkpoint";

/// The folder of that run as it was after step 2.
fs::path interrupted_run(int ranks) {
  fs::path folder = empty_folder("jobs/version_one.r" + std::to_string(ranks));
  const fs::path step = folder / "output/step-0000000002";
  fs::create_directories(folder / "model");
  fs::create_directories(folder / "output");
  fs::copy(golden / "step-0000000002", step);
  fs::permissions(step, fs::perms::owner_all);
  fs::copy(golden / "metrics.jsonl", folder / "output/metrics.jsonl");
  fs::copy(golden / "deck.toml", folder / "deck.toml");
  fs::copy(golden / "counting.txt", folder / "counting.txt");
  fs::copy(golden / "config.json", folder / "model/config.json");
  const fs::path tokenizer = source_folder() / "inputs/smoke/model";
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy(tokenizer / name, folder / "model" / name);
  return folder;
}

std::vector<double> losses(const fs::path& metrics) {
  std::vector<double> result;
  std::istringstream lines(read_file(metrics));
  for (std::string line; std::getline(lines, line);) {
    const core::Json row = core::parse_json(line, "metrics.jsonl");
    if (row.contains("loss")) result.push_back(row.at("loss").get<double>());
  }
  return result;
}

TEST(VersionOne, ARunContinuesFromIt) {
  const std::vector<double> expected = losses(golden / "metrics.jsonl");
  ASSERT_EQ(expected.size(), 6u);
  std::vector<std::vector<double>> all;
  for (const int ranks : {1, 2}) {
    const fs::path folder = interrupted_run(ranks);
    const Outcome outcome = run_program(finetune_on(ranks, {"deck.toml"}), folder);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    EXPECT_EQ(count(outcome.text(), "continues from"), 1) << outcome.text();
    all.push_back(losses(folder / "output/metrics.jsonl"));
    ASSERT_EQ(all.back().size(), 6u);
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_NEAR(all.back()[i], expected[i], 1e-4 * expected[i]) << "step " << i + 1;
    const std::string manifest = read_file(folder / "output/step-0000000006/MANIFEST.json");
    EXPECT_EQ(count(manifest, "\"version\":2,"), 1);
  }
  EXPECT_EQ(all[0], all[1]);
}

}  // namespace
}  // namespace finetune::tests::version_one_test
