// SPDX-License-Identifier: Apache-2.0
// finetune generate: conversations by the template that an adapter brings.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/json.hpp"
#include "support/files.hpp"
#include "support/folders.hpp"
#include "support/messages.hpp"
#include "support/residence.hpp"

namespace finetune::tests::generate_template_test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class GenerateTemplate : public testing::Test {
 protected:
  void SetUp() override { ::setenv("OMP_NUM_THREADS", "1", 1); }
  void TearDown() override { ::unsetenv("OMP_NUM_THREADS"); }
};

TEST_F(GenerateTemplate, IsThatOfAnAdaptersFolder) {
  const fs::path folder = empty_folder("generate.adapter_template"),
                 golden = source_folder() / "tests/golden";
  const auto write_model = [&](const char* name, const std::string& chat) {
    fs::copy(golden / "models/llama", folder / name);
    fs::copy_file(golden / "tokenizers/llama3/tokenizer.json", folder / name / "tokenizer.json");
    std::ofstream(folder / name / "tokenizer_config.json") << R"({"eos_token": "<|end_of_text|>"})";
    if (!chat.empty()) std::ofstream(folder / name / "chat_template.jinja") << chat;
  };
  const auto written_as = [](const std::string& before) {
    return "{% for m in messages %}{{ '" + before +
           "' + m.content }}{{ eos_token if m.role == 'assistant' }}{% endfor %}";
  };
  write_model("bare", "");
  write_model("plain", written_as(""));
  write_model("marked", written_as("ring: "));
  fs::copy(golden / "train/lora_final", folder / "adapter");
  std::ofstream(folder / "adapter/chat_template.jinja") << written_as("ring: ");
  const std::string silent = golden / "train/lora_final";
  const auto answer = [&](const char* model, const std::string& adapter) {
    Words words = {"generate", model, "Count.", "--chat", "--max-tokens", "8", "--dtype", "fp32"};
    if (!adapter.empty()) words.insert(words.end(), {"--adapter", adapter});
    return run_finetune(1, words, folder);
  };
  const std::string marked = answer("marked", silent).out;
  EXPECT_NE(answer("plain", silent).out, marked);
  EXPECT_EQ(answer("plain", "adapter").out, marked);
  EXPECT_EQ(answer("bare", "adapter").out, marked);
  EXPECT_TRUE(answer("bare", silent).ended_with(65));
  // In a conversation it goes with the adapter.
  std::ofstream(folder / "typed.txt") << "Count.\n/base\n/again\n/adapter adapter\n/again\n/quit\n";
  const auto talk = run_program({"bash", "-c",
                                 (build_folder() / "finetune").string() +
                                     " generate plain --chat --adapter adapter --max-tokens 8"
                                     " --dtype fp32 < typed.txt"},
                                folder);
  EXPECT_EQ(talk.out, marked + answer("plain", "").out + marked) << talk.text();
}

TEST_F(GenerateTemplate, IsGivenNames) {
  const fs::path folder = empty_folder("generate.kwargs"),
                 golden = source_folder() / "tests/golden";
  fs::copy(golden / "models/llama", folder / "model");
  fs::copy_file(golden / "tokenizers/llama3/tokenizer.json", folder / "model/tokenizer.json");
  std::ofstream(folder / "model/tokenizer_config.json") << R"({"eos_token": "<|end_of_text|>"})";
  std::ofstream(folder / "model/chat_template.jinja")
      << "{{ tools[0].name if tools }}{% for m in messages %}{{ (mood or '') + m.content }}"
         "{{ eos_token if m.role == 'assistant' }}{% endfor %}";
  const auto run = [&](const Words& more) {
    Words words = {"generate", "model", "--max-tokens", "8", "--dtype", "fp32"};
    words.insert(words.end(), more.begin(), more.end());
    return run_finetune(1, words, folder);
  };
  const auto text = [&](const Words& more) {
    const Outcome outcome = run(more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    return outcome.out.substr(0, outcome.out.size() - 1);
  };
  const std::string plain = text({"Count.", "--chat"}), glad = text({"glad: Count.", "--chat"}),
                    add = text({"addCount.", "--chat"});
  ASSERT_NE(plain, glad);
  ASSERT_NE(plain, add);
  const std::string mood = R"({"mood": "glad: "})";
  EXPECT_EQ(text({"Count.", "--chat", "--template-kwargs", mood}), glad);
  const Outcome misspelt = run({"Count.", "--chat", "--template-kwargs", R"({"moods": "x"})"});
  EXPECT_EQ(misspelt.out, plain + "\n") << misspelt.text();
  expect_line_about(misspelt.err, {"--template-kwargs", "\"moods\"", "\"mood\""});
  const std::string messages = R"("messages": [{"role": "user", "content": "Count."}])";
  std::ofstream(folder / "prompts.jsonl")
      << "{" << messages << "}\n{" << messages << R"(, "chat_template_kwargs": )" << mood << "}\n{"
      << messages << R"(, "tools": [{"name": "add"}], "chat_template_kwargs": "{\"mood\")"
      << R"(: \"\"}"})"
      << "\n";
  const auto texts = [&](const std::string& output, const Words& more) {
    Words words = {"--file", "prompts.jsonl", "-o", output};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    Words lines;
    std::ifstream file(folder / output);
    for (std::string line; std::getline(file, line);)
      lines.push_back(core::Json::parse(line).at("text"));
    return lines;
  };
  EXPECT_EQ(texts("own.jsonl", {}), (Words{plain, glad, add}));
  EXPECT_EQ(texts("both.jsonl", {"--chat", "--template-kwargs", mood}), (Words{glad, glad, add}));
  for (const char* broken : {"[1]", "{", "3"}) {
    const Outcome outcome = run({"Count.", "--chat", "--template-kwargs", broken});
    EXPECT_TRUE(outcome.ended_with(64)) << outcome.text();
    EXPECT_EQ(count(outcome.err, "--template-kwargs"), 1) << outcome.err;
  }
}

TEST_F(GenerateTemplate, IsGivenWholeMessages) {
  const fs::path folder = empty_folder("generate.messages"),
                 golden = source_folder() / "tests/golden";
  fs::copy(golden / "models/llama", folder / "model");
  fs::copy_file(golden / "tokenizers/llama3/tokenizer.json", folder / "model/tokenizer.json");
  std::ofstream(folder / "model/tokenizer_config.json") << R"({"eos_token": "<|end_of_text|>"})";
  std::ofstream(folder / "model/chat_template.jinja")
      << "{% for m in messages %}"
         "{% if m.role not in ['system', 'user', 'assistant', 'tool'] %}"
         "{{ raise_exception('no role ' + m.role) }}{% endif %}"
         "{% if m.content is string %}{{ m.content }}{% elif m.content %}"
         "{{ m.content | map(attribute='text') | join }}{% endif %}{{ m.reasoning_content or '' }}"
         "{% for c in m.tool_calls or [] %}{{ c.function.name ~ c.function.arguments.n }}"
         "{% endfor %}{% endfor %}";
  const auto run = [&](const Words& more) {
    Words words = {"generate", "model", "--max-tokens", "8", "--dtype", "fp32"};
    words.insert(words.end(), more.begin(), more.end());
    return run_finetune(1, words, folder);
  };
  const auto write = [&](const std::string& messages) {
    std::ofstream(folder / "prompts.jsonl") << R"({"messages": [)" << messages << "]}\n";
  };
  const Outcome plain = run({"Count 1, then add2 more.", "--chat"});
  ASSERT_EQ(plain.exit_code, 0) << plain.text();
  write(R"({"role": "developer", "content": "Count"},
           {"role": "user", "content": [{"type": "text", "text": " 1,"}]},
           {"role": "assistant", "content": null, "reasoning_content": " then ",
            "tool_calls": [{"function": {"name": "add", "arguments": {"n": 2}}}]},
           {"role": "ipython", "content": " more."})");
  // A record is a line.
  std::string line = file_text(folder / "prompts.jsonl");
  std::erase(line, '\n');
  std::ofstream(folder / "prompts.jsonl") << line << "\n";
  const Outcome whole = run({"--file", "prompts.jsonl", "-o", "whole.jsonl"});
  ASSERT_EQ(whole.exit_code, 0) << whole.text();
  EXPECT_EQ(
      core::Json::parse(file_text(folder / "whole.jsonl")).at("text").get<std::string>() + "\n",
      plain.out);
  write(R"({"role": "critic", "content": "No."}, {"role": "user", "content": "Count."})");
  const Outcome refused = run({"--file", "prompts.jsonl", "-o", "refused.jsonl"});
  EXPECT_TRUE(refused.ended_with(65)) << refused.text();
  expect_line_about(refused.err, {"prompts.jsonl:1", "\"critic\""});
}

}  // namespace
}  // namespace finetune::tests::generate_template_test
