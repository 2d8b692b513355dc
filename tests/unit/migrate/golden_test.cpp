// SPDX-License-Identifier: Apache-2.0
// A whole configuration of each program, and the deck that is printed for it.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "migrate/migrate.hpp"
#include "support/folders.hpp"

namespace finetune::migrate::tests::golden_test {
namespace {

namespace fs = std::filesystem;
const fs::path folder = finetune::tests::source_folder() / "tests/golden/migrate";

std::optional<std::string> text_of(const fs::path& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Case {
  const char* file;
  std::vector<std::pair<std::string, std::string>> given = {};
  std::optional<std::int64_t> ranks = {};
};

class Golden : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Programs, Golden,
    testing::Values(Case{"axolotl.yml"}, Case{"llama_factory.yaml", {}, 4}, Case{"torchtune.yaml"},
                    Case{"litgpt.yaml"}, Case{"trl.json", {}, 2},
                    Case{"deepspeed.json",
                         {{"model.path", "\"m\""}, {"data.path", "\"d.jsonl\""}}}),
    [](const auto& info) {
      return std::string(info.param.file).substr(0, std::string(info.param.file).find('.'));
    });

TEST_P(Golden, IsThisDeck) {
  const Case& its = GetParam();
  Options options;
  options.ranks = its.ranks;
  options.given = its.given;
  options.read_named = [](const std::string& name) { return text_of(folder / name); };
  const std::string made = make_deck(*text_of(folder / its.file), its.file, options);
  const fs::path expected = fs::path(folder / its.file).replace_extension(".toml");
  EXPECT_EQ(text_of(expected).value_or(""), made);
}

}  // namespace
}  // namespace finetune::migrate::tests::golden_test
