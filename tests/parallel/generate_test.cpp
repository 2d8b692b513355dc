// SPDX-License-Identifier: Apache-2.0
// finetune generate: files of prompts and conversations, on any number of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/file.hpp"
#include "core/file_lock.hpp"
#include "core/json.hpp"
#include "support/files.hpp"
#include "support/folders.hpp"
#include "support/residence.hpp"

namespace finetune::tests::generate_test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

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
  const Outcome alone = run_finetune(1, words("one.jsonl"), folder);
  ASSERT_EQ(alone.exit_code, 0) << alone.text();
  const std::string expected = file_text(folder / "one.jsonl");
  std::istringstream lines(expected);
  int number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    const core::Json answer = core::Json::parse(line);
    EXPECT_EQ(answer.at("id"), number) << "in the order of the prompts";
    EXPECT_LE(answer.at("tokens").get<int>(), number == 4 ? 2 : 12);
  }
  EXPECT_EQ(number, 21);
  const auto expect_same = [&](int ranks, const std::string& output, const Words& more) {
    const Outcome outcome = run_finetune(ranks, words(output, more), folder);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
    EXPECT_TRUE(file_text(folder / output) == expected) << ranks;
  };
  expect_same(3, "three.jsonl", {});
  expect_same(4, "shared.jsonl", {"--tp", "2"});
}

TEST_F(Generate, ATextIsThatOfItsPromptAloneWhateverElseIsInAPass) {
  // Prompts of a few and of many tokens, which end at different times: others begin beside those
  // that go on.
  const fs::path folder = empty_folder("generate.batches");
  {
    std::ofstream out(folder / "prompts.jsonl");
    for (int i = 0; i < 44; ++i) {
      std::string prompt = "The ring is";
      for (int word = 0; word < i % 8 * 7; ++word)
        prompt += " a" + std::to_string(word * i % 10);
      core::Json line = {{"prompt", prompt}, {"max_tokens", 2 + i * 5 % 13}};
      if (i % 4 == 1) line.update({{"temperature", 0.9}, {"seed", i}});
      out << line.dump() << "\n";
    }
  }
  for (const char* dtype : {"bf16", "fp32"}) {
    std::string expected;
    for (const auto& [ranks, batch] :
         {std::pair(1, "1"), {1, "5"}, {1, "44"}, {2, "8"}, {3, "32"}}) {
      const std::string output = std::string(dtype) + batch + ".jsonl";
      const Outcome outcome =
          run_finetune(ranks,
                       {"generate", model(), "--file", "prompts.jsonl", "-o", output, "--dtype",
                        dtype, "--batch", batch, "--log-probs"},
                       folder);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
      const std::string answers = file_text(folder / output);
      if (expected.empty()) expected = answers;
      EXPECT_TRUE(answers == expected) << dtype << ", " << ranks << " ranks, batches of " << batch;
    }
    EXPECT_EQ(std::ranges::count(expected, '\n'), 44);
  }
}

TEST_F(Generate, GoesOnWhereItWasKilled) {
  const fs::path folder = empty_folder("generate.killed");
  write_prompts(folder / "prompts.jsonl", 40);
  const Outcome whole = run_finetune(1, words("whole.jsonl"), folder);
  ASSERT_EQ(whole.exit_code, 0) << whole.text();
  const fs::path output = folder / "out.jsonl";
  {
    Process process(finetune_on(2, words("out.jsonl")), folder);
    while (std::ranges::count(file_text(output), '\n') < 8 && process.read_for(5)) {
    }
    process.kill();
  }
  const std::string lines = file_text(output);
  ASSERT_GE(std::ranges::count(lines, '\n'), 8);
  // In the middle of a line.
  std::ofstream(output) << lines.substr(0, lines.size() - 9);
  const Outcome rest = run_finetune(1, words("out.jsonl"), folder);
  ASSERT_EQ(rest.exit_code, 0) << rest.text();
  EXPECT_NE(rest.text().find("goes on: "), std::string::npos) << rest.text();
  EXPECT_TRUE(file_text(output) == file_text(folder / "whole.jsonl"));
  const Outcome others = run_finetune(2, words("out.jsonl", {"--temperature", "1"}), folder);
  EXPECT_TRUE(others.ended_with(73)) << others.text();
  EXPECT_EQ(count(others.text(), "is no answer to this line of the prompts"), 1) << others.text();
  EXPECT_TRUE(file_text(output) == file_text(folder / "whole.jsonl")) << "nothing was lost";
}

TEST_F(Generate, NamesTheLineThatIsWrong) {
  const fs::path folder = empty_folder("generate.wrong");
  const auto refused = [&](const std::string& line, const std::string& part) {
    std::ofstream(folder / "prompts.jsonl") << "{\"prompt\": \"x\"}\n" << line << "\n";
    const Outcome outcome = run_finetune(2, words("out.jsonl"), folder);
    EXPECT_TRUE(outcome.ended_with(65)) << outcome.text();
    EXPECT_EQ(count(outcome.text(), "prompts.jsonl:2"), 1) << outcome.text();
    EXPECT_EQ(count(outcome.text(), part), 1) << outcome.text();
    EXPECT_FALSE(fs::exists(folder / "out.jsonl"));
  };
  refused("{\"text\": \"x\"}", "there is neither \"prompt\" nor \"messages\"");
  refused("{\"prompt\": 3}", "\"prompt\" is no text");
  refused("{\"prompt\": \"x\", \"top_p\": 2}", "\"top_p\" is 2");
  refused("{\"prompt\": \"x\", \"temprature\": 1}", "there is no key \"temprature\"");
  refused("{\"prompt\": \"x\", \"max_tokens\": 2.5}", "\"max_tokens\" is 2.5");
  refused("{\"prompt\": \"x\", \"top_k\": 1.5}", "\"top_k\" is 1.5");
  refused("{\"prompt\": \"x\", \"stop\": \"\"}", "\"stop\" is \"\"");
  refused("{\"prompt\": ", "broken JSON");
}

TEST_F(Generate, KeepsFilesThatHoldNoAnswers) {
  const fs::path folder = empty_folder("generate.kept");
  write_prompts(folder / "prompts.jsonl", 2);
  const auto kept = [&](const std::string& text, int code, const std::string& part,
                        const std::string& output = "out.jsonl") {
    std::ofstream(folder / output) << text;
    const Outcome outcome = run_finetune(2, words(output), folder);
    EXPECT_TRUE(outcome.ended_with(code)) << outcome.text();
    EXPECT_EQ(count(outcome.text(), part), 1) << outcome.text();
    EXPECT_EQ(file_text(folder / output), text);
  };
  const std::string no_answers = "is no line of a file of answers";
  kept("notes of mine, without an end", 73, no_answers);
  kept("{\"text\":\"a whole line of data\"}", 73, no_answers);
  kept("{\"prompt\": \"cut o", 73, no_answers);
  kept("notes of mine\n", 73, no_answers);
  const std::string prompts = file_text(folder / "prompts.jsonl");
  kept(prompts, 64, "the file of prompts", "prompts.jsonl");
  kept(prompts, 64, "the file of prompts", "./prompts.jsonl");
  fs::create_directory(folder / "adir");
  const Outcome of_folder = run_finetune(2, words("adir"), folder);
  EXPECT_TRUE(of_folder.ended_with(73)) << of_folder.text();
  EXPECT_EQ(count(of_folder.text(), "adir: is a folder"), 1) << of_folder.text();
  // The first answer of a start that was killed.
  std::ofstream(folder / "out.jsonl") << "{\"id\":0,\"te";
  EXPECT_EQ(run_finetune(1, words("out.jsonl"), folder).exit_code, 0);
  EXPECT_EQ(std::ranges::count(file_text(folder / "out.jsonl"), '\n'), 2);
}

TEST_F(Generate, IsAloneWithItsAnswers) {
  const fs::path folder = empty_folder("generate.locked");
  write_prompts(folder / "prompts.jsonl", 2);
  {
    const core::File other(folder / "out.jsonl", core::File::Mode::create_or_write);
    if (core::try_lock(other.descriptor(), core::Lock::exclusive) != core::Locked::yes)
      GTEST_SKIP() << "no locks here";
    const Outcome outcome = run_finetune(2, words("out.jsonl"), folder);
    EXPECT_TRUE(outcome.ended_with(73)) << outcome.text();
    EXPECT_EQ(count(outcome.text(), "is in use by another finetune"), 1) << outcome.text();
  }
  EXPECT_EQ(run_finetune(2, words("out.jsonl"), folder).exit_code, 0);
}

TEST_F(Generate, DoesNotGoOnWithAnotherModel) {
  const fs::path folder = empty_folder("generate.other_model");
  fs::copy(model(), folder / "model", fs::copy_options::recursive);
  write_prompts(folder / "prompts.jsonl", 2);
  Words start = words("out.jsonl");
  start[1] = "model";
  ASSERT_EQ(run_finetune(1, start, folder).exit_code, 0);
  EXPECT_EQ(run_finetune(2, start, folder).exit_code, 0) << "nothing was left to do";
  const fs::path weights = folder / "model/model.safetensors";
  fs::permissions(weights, fs::perms::owner_write, fs::perm_options::add);
  fs::last_write_time(weights, fs::last_write_time(weights) + std::chrono::seconds(5));
  const Outcome outcome = run_finetune(2, start, folder);
  EXPECT_TRUE(outcome.ended_with(73)) << outcome.text();
  EXPECT_EQ(count(outcome.text(), "another model"), 1) << outcome.text();
}

TEST_F(Generate, SaysWhatIsWrongWithFilesBeforeItLoadsTheModel) {
  const fs::path folder = empty_folder("generate.before");
  fs::copy(model(), folder / "model", fs::copy_options::recursive);
  fs::remove(folder / "model/model.safetensors");
  Words start = words("out.jsonl");
  start[1] = "model";
  const auto refused = [&](const std::string& prompts, const std::string& part) {
    std::ofstream(folder / "prompts.jsonl") << prompts;
    const Outcome outcome = run_finetune(2, start, folder);
    EXPECT_TRUE(outcome.ended_with(65)) << outcome.text();
    EXPECT_EQ(count(outcome.text(), part), 1) << outcome.text();
    EXPECT_EQ(count(outcome.text(), "data.path"), 0) << outcome.text();
  };
  refused("{\"prompt\": 3}\n", "prompts.jsonl:1");
  refused("", "has no prompts");
}

TEST_F(Generate, EndsAtTextsOfTheLine) {
  const fs::path folder = empty_folder("generate.stop");
  std::ofstream(folder / "prompts.jsonl") << "{\"prompt\": \"The ring is\"}\n";
  const auto answer = [&](const std::string& output, const Words& more) {
    const Outcome outcome = run_finetune(1, words(output, more), folder);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    return core::Json::parse(file_text(folder / output)).at("text").get<std::string>();
  };
  const std::string whole = answer("whole.jsonl", {});
  ASSERT_GT(whole.size(), 2u);
  const std::string stop = whole.substr(whole.size() / 2, 1);
  const std::string before = whole.substr(0, whole.find(stop));
  EXPECT_EQ(answer("option.jsonl", {"--stop", stop}), before);
  std::ofstream(folder / "prompts.jsonl")
      << core::Json({{"prompt", "The ring is"}, {"stop", {"\n\nnowhere", stop}}}).dump() << "\n";
  EXPECT_EQ(answer("line.jsonl", {"--stop", "elsewhere"}), before);
  const Outcome empty = run_finetune(2, words("out.jsonl", {"--stop", ""}), folder);
  EXPECT_TRUE(empty.ended_with(64)) << empty.text();
  EXPECT_EQ(count(empty.text(), "an empty text would end every answer"), 1) << empty.text();
}

TEST_F(Generate, NamesItsOwnOptions) {
  const fs::path folder = empty_folder("generate.options");
  const Outcome gpu =
      run_finetune(1, {"generate", model(), "x", "--max-tokens", "1", "--device", "gpu"}, folder);
  EXPECT_EQ(count(gpu.text(), "train.device"), 0) << gpu.text();
  // A template that cannot write a conversation.
  fs::copy(model(), folder / "model", fs::copy_options::recursive);
  std::ofstream(folder / "model/chat_template.jinja")
      << "{{ raise_exception('no') }}{{ eos_token }}";
  const Outcome chat = run_finetune(2, {"generate", "model", "x", "--chat"}, folder);
  EXPECT_TRUE(chat.ended_with(65)) << chat.text();
  EXPECT_GE(count(chat.text(), "--template"), 1) << chat.text();
  EXPECT_EQ(count(chat.text(), "data.template"), 0) << chat.text();
}

TEST_F(Generate, TalksThroughAPipe) {
  const fs::path folder = empty_folder("generate.chat");
  // A tokenizer whose end token a known template can end answers with.
  fs::copy(model(), folder / "model", fs::copy_options::recursive);
  core::Json config = core::Json::parse(file_text(folder / "model/tokenizer_config.json"));
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
    return outcome;
  };
  const std::string program = build_folder() / "finetune";
  const Outcome by_itself = said(program);
  const std::string alone = by_itself.out;
  EXPECT_GE(std::ranges::count(alone, '\n'), 2) << alone;
  const Outcome on_ranks = said(source_folder().string() + "/tests/support/mpirun.sh 2 " + program);
  EXPECT_EQ(on_ranks.out, alone);
  for (const char* remark :
       {"there is no adapter \"none\"", "nothing was asked yet", "/help says what can be typed"}) {
    EXPECT_EQ(count(by_itself.err, remark), 1) << by_itself.err;
    EXPECT_EQ(count(alone, remark), 0) << "answers alone: " << alone;
  }
}

TEST_F(Generate, TakesAnAdapterThatIsNamedInAConversation) {
  const fs::path folder = empty_folder("generate.adapters"),
                 golden = source_folder() / "tests/golden";
  fs::copy(golden / "models/llama", folder / "model");
  fs::copy_file(golden / "tokenizers/llama3/tokenizer.json", folder / "model/tokenizer.json");
  std::ofstream(folder / "model/tokenizer_config.json")
      << core::Json({{"eos_token", "<|end_of_text|>"},
                     {"chat_template",
                      "{% for m in messages %}{{ m.content }}{{ eos_token if m.role == "
                      "'assistant' }} {% endfor %}"}})
             .dump();
  const std::string first = golden / "train/lora_final", second = golden / "adapters/dora";
  const auto said = [&](const std::string& typed, const Words& more) {
    std::ofstream(folder / "typed.txt") << typed;
    std::string words;
    for (const std::string& word : more)
      words += " " + word;
    const Outcome outcome =
        run_program({"bash", "-c",
                     (build_folder() / "finetune").string() +
                         " generate model --chat --max-tokens 8 --dtype fp32 < typed.txt" + words},
                    folder);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    std::vector<std::string> lines;
    std::istringstream out(outcome.out);
    for (std::string line; std::getline(out, line);)
      lines.push_back(line);
    return lines;
  };
  const auto answer = [&](const Words& more) { return said("Count.\n", more).back(); };
  const std::string base = answer({}), by_first = answer({"--adapter", first}),
                    by_second = answer({"--adapter", second});
  ASSERT_NE(base, by_first);
  ASSERT_NE(by_first, by_second);
  const auto lines = said("Count.\n/adapter " + first + "\n/again\n/adapter " + second +
                              "\n/again\n/adapter lora_final\n/again\n/adapter none\n/again\n"
                              "/base\n/again\n",
                          {});
  std::vector<std::string> answers;
  std::ranges::copy_if(lines, std::back_inserter(answers), [&](const std::string& line) {
    return line == base || line == by_first || line == by_second;
  });
  EXPECT_EQ(answers, (std::vector{base, by_first, by_second, by_first, by_first, base}));
}

TEST_F(Generate, ChoosesTokensAsTheModelSays) {
  const fs::path folder = empty_folder("generate.model_says");
  fs::copy(model(), folder / "model", fs::copy_options::recursive);
  const auto says = [&](const core::Json& config) {
    std::ofstream(folder / "model/generation_config.json") << config.dump();
  };
  const auto generated = [&](const Words& more) {
    Words all = {"generate", "model", "The ring is", "--max-tokens", "24", "--dtype", "fp32"};
    all.insert(all.end(), more.begin(), more.end());
    return run_finetune(2, all, folder);
  };
  const auto text = [&](const Outcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    return outcome.out.substr(outcome.out.rfind('\n', outcome.out.size() - 2) + 1);
  };
  const std::string greedy = text(generated({}));
  const std::string sampled = text(generated({"--temperature", "2.5", "--top-k", "40"}));
  ASSERT_NE(sampled, greedy);
  says({{"do_sample", true}, {"temperature", 2.5}, {"top_k", 40}, {"top_p", nullptr}});
  const Outcome by_model = generated({});
  EXPECT_EQ(text(by_model), sampled);
  EXPECT_EQ(count(by_model.text(), "generation_config.json says: temperature 2.5, top-k 40;"), 1)
      << by_model.text();
  const Outcome by_option = generated({"--temperature", "0"});
  EXPECT_EQ(text(by_option), greedy);
  EXPECT_EQ(count(by_option.text(), "generation_config.json"), 0) << by_option.text();
  says({{"do_sample", false}, {"temperature", 2.5}, {"top_k", 40}});
  EXPECT_EQ(text(generated({})), greedy);
  says({{"do_sample", true}, {"top_p", 3}});
  const Outcome wrong = generated({});
  EXPECT_TRUE(wrong.ended_with(65)) << wrong.text();
  EXPECT_EQ(count(wrong.text(), "generation_config.json: \"top_p\" is 3"), 1) << wrong.text();
}

}  // namespace
}  // namespace finetune::tests::generate_test
