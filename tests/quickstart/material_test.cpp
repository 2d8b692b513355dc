// SPDX-License-Identifier: Apache-2.0
// The quickstart's shipped files: they are what the generator writes, and they are fit for use.

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "generator/material.hpp"
#include "generator/task.hpp"

namespace finetune::quickstart::material_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t limit_bytes = std::int64_t{1} << 28;
const fs::path shipped = FINETUNE_SOURCE_DIR "/inputs/quickstart";

std::vector<Example> read_examples(const fs::path& path) {
  std::vector<Example> all;
  for (const core::Json& row : core::read_json(path, limit_bytes)) {
    all.push_back({row.at("instruction"), row.at("input"), row.at("output")});
  }
  return all;
}

std::size_t num_words(const std::string& text) {
  std::istringstream words(text);
  return std::distance(std::istream_iterator<std::string>(words), {});
}

/// A fresh run of the generator, shared by all tests of this file.
class QuickstartMaterial : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::path(FINETUNE_BINARY_DIR) / "tests" / "quickstart_material";
    fs::remove_all(folder_);
    write_material(folder_);
    corpus_ = core::read_text(folder_ / "corpus.jsonl", limit_bytes);
  }

  static fs::path folder_;
  static std::string corpus_;
};

fs::path QuickstartMaterial::folder_;
std::string QuickstartMaterial::corpus_;

TEST_F(QuickstartMaterial, ShippedFilesAreWhatTheGeneratorWrites) {
  for (const char* name : {"train.json", "held_out.json", "model/config.json",
                           "model/tokenizer.json", "model/tokenizer_config.json"}) {
    EXPECT_EQ(core::fingerprint(core::read_text(folder_ / name, limit_bytes)),
              core::fingerprint(core::read_text(shipped / name, limit_bytes)))
        << name << " differs: run `quickstart_material inputs/quickstart` and pre-train again";
  }
}

TEST_F(QuickstartMaterial, CorpusIsTheSameOnEveryMachine) {
  EXPECT_EQ(core::fingerprint(corpus_), "afb049dc2e37ad60d2803a559fe129d0");
}

TEST_F(QuickstartMaterial, CorpusHoldsNoInstructions) {
  for (const char* heading : {"### Instruction:", "### Input:", "### Response:"}) {
    EXPECT_EQ(corpus_.find(heading), std::string::npos) << heading;
  }
}

TEST_F(QuickstartMaterial, HeldOutStoriesAreToldNowhereElse) {
  std::size_t num_stories = 0;
  for (const Example& example : read_examples(folder_ / "held_out.json")) {
    if (example.input.empty() || example.input.find('.') == std::string::npos) continue;
    ++num_stories;
    EXPECT_EQ(corpus_.find(example.input), std::string::npos) << example.input;
  }
  EXPECT_GE(num_stories, 100u);
}

TEST_F(QuickstartMaterial, NothingHeldOutIsAskedInTraining) {
  std::set<std::string> inputs;
  std::set<std::string> instructions_alone;
  for (const Example& example : read_examples(folder_ / "train.json")) {
    (example.input.empty() ? instructions_alone.insert(example.output)
                           : inputs.insert(example.input));
  }
  for (const Example& example : read_examples(folder_ / "held_out.json")) {
    EXPECT_FALSE(example.input.empty() ? instructions_alone.contains(example.output)
                                       : inputs.contains(example.input))
        << example.instruction;
  }
}

TEST_F(QuickstartMaterial, AnswersAreShort) {
  for (const char* name : {"train.json", "held_out.json"}) {
    for (const Example& example : read_examples(folder_ / name)) {
      EXPECT_GE(num_words(example.output), 1u) << example.output;
      EXPECT_LE(num_words(example.output), 8u) << example.output;
    }
  }
}

TEST_F(QuickstartMaterial, ThereAreEnoughDifferentExamples) {
  const std::vector<Example> train = read_examples(folder_ / "train.json");
  const std::vector<Example> held_out = read_examples(folder_ / "held_out.json");
  EXPECT_GE(std::set<Example>(train.begin(), train.end()).size(), 2000u);
  EXPECT_GE(std::set<Example>(held_out.begin(), held_out.end()).size(), 200u);
}

}  // namespace
}  // namespace finetune::quickstart::material_test
