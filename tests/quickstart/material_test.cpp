// SPDX-License-Identifier: Apache-2.0
// The quickstart's shipped questions are fit for use.

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

#include "core/json.hpp"
#include "support/folders.hpp"

namespace finetune::tests::material_test {
namespace {

struct Example {
  std::string instruction;
  std::string input;  ///< may be empty
  std::string output;

  auto operator<=>(const Example&) const = default;
};

std::vector<Example> read_examples(const std::string& name) {
  std::vector<Example> all;
  for (const core::Json& row :
       core::read_json(source_folder() / "inputs/quickstart" / name, 1 << 28)) {
    all.push_back({row.at("instruction"), row.at("input"), row.at("output")});
  }
  return all;
}

std::size_t num_words(const std::string& text) {
  std::istringstream words(text);
  return std::distance(std::istream_iterator<std::string>(words), {});
}

TEST(QuickstartMaterial, NothingHeldOutIsAskedInTraining) {
  std::set<std::string> inputs;
  std::set<std::string> instructions_alone;
  for (const Example& example : read_examples("train.json")) {
    (example.input.empty() ? instructions_alone.insert(example.output)
                           : inputs.insert(example.input));
  }
  for (const Example& example : read_examples("held_out.json")) {
    EXPECT_FALSE(example.input.empty() ? instructions_alone.contains(example.output)
                                       : inputs.contains(example.input))
        << example.instruction;
  }
}

TEST(QuickstartMaterial, ManyHeldOutQuestionsAreAboutStories) {
  std::size_t num_stories = 0;
  for (const Example& example : read_examples("held_out.json"))
    num_stories += example.input.find('.') != std::string::npos ? 1 : 0;
  EXPECT_GE(num_stories, 100u);
}

TEST(QuickstartMaterial, AnswersAreShort) {
  for (const char* name : {"train.json", "held_out.json"}) {
    for (const Example& example : read_examples(name)) {
      EXPECT_GE(num_words(example.output), 1u) << example.output;
      EXPECT_LE(num_words(example.output), 8u) << example.output;
    }
  }
}

TEST(QuickstartMaterial, ThereAreEnoughDifferentExamples) {
  const std::vector<Example> train = read_examples("train.json");
  const std::vector<Example> held_out = read_examples("held_out.json");
  EXPECT_GE(std::set<Example>(train.begin(), train.end()).size(), 2000u);
  EXPECT_GE(std::set<Example>(held_out.begin(), held_out.end()).size(), 200u);
}

}  // namespace
}  // namespace finetune::tests::material_test
