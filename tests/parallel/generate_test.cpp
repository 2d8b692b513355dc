// SPDX-License-Identifier: Apache-2.0
// finetune generate: files of prompts and conversations, on any number of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/json.hpp"
#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::generate_test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::string model() {
  return source_folder() / "inputs/quickstart/model";
}

/// Prompts of several lengths; some are sampled, one asks for few tokens.
void write_prompts(const fs::path& file, int count) {
  std::ofstream out(file);
  for (int i = 0; i < count; ++i) {
    core::Json line = {{"id", i}, {"prompt", "The ring is " + std::string(i % 7, 'a')}};
    if (i % 3 == 1) line.update({{"temperature", 0.9}, {"top_k", 30}, {"seed", i}});
    if (i == 4) line["max_tokens"] = 2;
    out << line.dump() << "\n";
  }
}

class Generate : public testing::Test {
 protected:
  void SetUp() override { ::setenv("OMP_NUM_THREADS", "1", 1); }
  void TearDown() override { ::unsetenv("OMP_NUM_THREADS"); }

  static Words words(const std::string& output, const Words& more = {}) {
    Words all = {"generate", model(),        "--file", "prompts.jsonl", "-o", output, "--dtype",
                 "fp32",     "--max-tokens", "12",     "--batch",       "4"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(Generate, AnswersAFileAlikeOnAnyRanks) {
  const fs::path folder = empty_folder("generate.ranks");
  write_prompts(folder / "prompts.jsonl", 21);
  const Outcome alone = run_program(finetune_on(1, words("one.jsonl")), folder);
  ASSERT_EQ(alone.exit_code, 0) << alone.text();
  const std::string expected = text_of(folder / "one.jsonl");
  std::istringstream lines(expected);
  int number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    const core::Json answer = core::Json::parse(line);
    EXPECT_EQ(answer.at("id"), number) << "in the order of the prompts";
    EXPECT_LE(answer.at("tokens").get<int>(), number == 4 ? 2 : 12);
  }
  EXPECT_EQ(number, 21);
  const auto expect_same = [&](int ranks, const std::string& output, const Words& more) {
    const Outcome outcome = run_program(finetune_on(ranks, words(output, more)), folder);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
    EXPECT_TRUE(text_of(folder / output) == expected) << ranks;
  };
  expect_same(3, "three.jsonl", {});
  expect_same(4, "shared.jsonl", {"--tp", "2"});
}

TEST_F(Generate, GoesOnWhereItWasKilled) {
  const fs::path folder = empty_folder("generate.killed");
  write_prompts(folder / "prompts.jsonl", 40);
  const Outcome whole = run_program(finetune_on(1, words("whole.jsonl")), folder);
  ASSERT_EQ(whole.exit_code, 0) << whole.text();
  const fs::path output = folder / "out.jsonl";
  {
    Process process(finetune_on(2, words("out.jsonl")), folder);
    while (std::ranges::count(text_of(output), '\n') < 8 && process.read_for(5)) {
    }
    process.kill();
  }
  const std::string lines = text_of(output);
  ASSERT_GE(std::ranges::count(lines, '\n'), 8);
  // In the middle of a line.
  std::ofstream(output) << lines.substr(0, lines.size() - 9);
  const Outcome rest = run_program(finetune_on(1, words("out.jsonl")), folder);
  ASSERT_EQ(rest.exit_code, 0) << rest.text();
  EXPECT_NE(rest.text().find("goes on: "), std::string::npos) << rest.text();
  EXPECT_TRUE(text_of(output) == text_of(folder / "whole.jsonl"));
  const Outcome others =
      run_program(finetune_on(2, words("out.jsonl", {"--temperature", "1"})), folder);
  EXPECT_TRUE(others.ended_with(73)) << others.text();
  EXPECT_EQ(count(others.text(), "is no answer to this line of the prompts"), 1) << others.text();
  EXPECT_TRUE(text_of(output) == text_of(folder / "whole.jsonl")) << "nothing was lost";
}

TEST_F(Generate, NamesTheLineThatIsWrong) {
  const fs::path folder = empty_folder("generate.wrong");
  const auto refused = [&](const std::string& line, const std::string& part) {
    std::ofstream(folder / "prompts.jsonl") << "{\"prompt\": \"x\"}\n" << line << "\n";
    const Outcome outcome = run_program(finetune_on(2, words("out.jsonl")), folder);
    EXPECT_TRUE(outcome.ended_with(65)) << outcome.text();
    EXPECT_EQ(count(outcome.text(), "prompts.jsonl:2"), 1) << outcome.text();
    EXPECT_EQ(count(outcome.text(), part), 1) << outcome.text();
    EXPECT_FALSE(fs::exists(folder / "out.jsonl"));
  };
  refused("{\"text\": \"x\"}", "there is neither \"prompt\" nor \"messages\"");
  refused("{\"prompt\": 3}", "\"prompt\" is no text");
  refused("{\"prompt\": \"x\", \"top_p\": 2}", "\"top_p\" is 2");
  refused("{\"prompt\": ", "broken JSON");
}

TEST_F(Generate, TalksThroughAPipe) {
  const fs::path folder = empty_folder("generate.chat");
  // A tokenizer whose end token a known template can end answers with.
  fs::copy(model(), folder / "model", fs::copy_options::recursive);
  core::Json config = core::Json::parse(text_of(folder / "model/tokenizer_config.json"));
  config["chat_template"] =
      "{% for m in messages %}{{ m.content }}{{ eos_token if m.role == 'assistant' }} {% endfor %}";
  std::ofstream(folder / "model/tokenizer_config.json") << config.dump();
  std::ofstream(folder / "typed.txt")
      << "What colour is the ring?\n/base\n/again\n/adapter none\n/help\n/reset\n/again\n/quit\n";
  const auto said = [&](const std::string& start) {
    const Outcome outcome = run_program(
        {"bash", "-c", start + " generate model --chat --max-tokens 6 --dtype fp32 < typed.txt"},
        folder);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    return outcome.out;
  };
  const std::string program = build_folder() / "finetune";
  const std::string alone = said(program);
  EXPECT_GE(std::ranges::count(alone, '\n'), 2) << alone;
  const std::string on_ranks =
      said(source_folder().string() + "/tests/support/mpirun.sh 2 " + program);
  EXPECT_EQ(on_ranks, alone);
  EXPECT_NE(alone.find("there is no adapter \"none\""), std::string::npos) << alone;
  EXPECT_NE(alone.find("nothing was asked yet"), std::string::npos) << alone;
}

}  // namespace
}  // namespace finetune::tests::generate_test
