// SPDX-License-Identifier: Apache-2.0
// finetune import: what it prints is a deck that finetune plan takes, and how it ends where it is
// none.
#include <gtest/gtest.h>

#include <fstream>

#include "support/folders.hpp"
#include "support/messages.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::import_test {
namespace {

namespace fs = std::filesystem;

const fs::path configurations = source_folder() / "tests/golden/migrate";
const std::string program = build_folder() / "finetune";

Outcome import(std::vector<std::string> words, const fs::path& folder = configurations) {
  words.insert(words.begin(), {program, "import"});
  return run_program(words, folder);
}

/// A file of its own in a folder of its own.
fs::path write(const std::string& name, const std::string& text) {
  const fs::path folder = empty_folder("import_" + name);
  std::ofstream(folder / name) << text;
  return folder / name;
}

class Programs : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Files, Programs,
                         testing::Values("axolotl.yml", "llama_factory.yaml", "torchtune.yaml",
                                         "litgpt.yaml", "trl.json"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find('.'));
                         });

TEST_P(Programs, MakeADeckThatPlans) {
  const Outcome made = import({GetParam(), "data.max_seq_length=64"});
  ASSERT_EQ(made.exit_code, 0) << made.text();
  EXPECT_EQ(made.err, "");
  const fs::path deck = write(std::string(GetParam()) + ".toml", made.out);
  const std::string model = source_folder() / "inputs/smoke/model";
  const Outcome planned =
      run_program({program, "plan", deck, "model.path=" + model, "--ranks", "2"}, configurations);
  EXPECT_EQ(planned.exit_code, 0) << made.out << planned.text();
}

TEST(Import, TakesWhatIsMissingFromTheCommandLine) {
  const Outcome missing = import({"deepspeed.json"});
  EXPECT_EQ(missing.exit_code, 78);
  expect_message(said_in(missing.err), "error: deepspeed.json",
                 {"model.path", "data.path", "2 problems"});
  EXPECT_EQ(missing.out, "");
  const Outcome made = import({"deepspeed.json", "model.path=a b", "data.path=[\"c.jsonl\"]"});
  EXPECT_EQ(made.exit_code, 0) << made.text();
  expect_line_about(made.out, {"path = \"a b\""});
  EXPECT_EQ(count(made.out, "path = [\"c.jsonl\"]  #"), 1) << made.out;
}

TEST(Import, EndsWith78WhereThereIsNoDeck) {
  EXPECT_EQ(import({"not_there.yml"}).exit_code, 78);
  const fs::path bad = write("bad.yml",
                             "base_model: m\ndatasets: [{path: d, type: alpaca}]\nadapter: lora\n"
                             "lora_dropout: 1.5\n");
  const Outcome range = import({bad});
  EXPECT_EQ(range.exit_code, 78);
  EXPECT_EQ(count(range.err, "lora_dropout = 1.5"), 2) << range.err;
  EXPECT_EQ(range.out, "");
  const Outcome hostile = import({write("deep.yml", "a: " + std::string(5000, '['))});
  EXPECT_EQ(hostile.exit_code, 78);
  EXPECT_EQ(count(hostile.err, "error: "), 1) << hostile.err;
  const Outcome unknown_key = import({"axolotl.yml", "train.speed=1"});
  EXPECT_EQ(unknown_key.exit_code, 78);
  EXPECT_EQ(count(unknown_key.err, "speed"), 2) << unknown_key.err;
}

TEST(Import, RefusesOtherCommandLines) {
  EXPECT_EQ(import({}).exit_code, 64);
  EXPECT_EQ(import({"axolotl.yml", "--from", "keras"}).exit_code, 64);
  EXPECT_EQ(import({"axolotl.yml", "--ranks", "0"}).exit_code, 64);
  EXPECT_EQ(import({"axolotl.yml", "learning_rate=1"}).exit_code, 64);
}

}  // namespace
}  // namespace finetune::tests::import_test
