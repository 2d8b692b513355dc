// SPDX-License-Identifier: Apache-2.0
// finetune generate: conversations by the template that an adapter brings.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/folders.hpp"
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

}  // namespace
}  // namespace finetune::tests::generate_template_test
