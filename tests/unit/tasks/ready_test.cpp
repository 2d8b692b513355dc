// SPDX-License-Identifier: Apache-2.0
// The task files that come with the program, on records as the sets have them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.hpp"
#include "support/folders.hpp"
#include "tasks/detail/instructions.hpp"
#include "tasks/requests.hpp"

namespace finetune::tasks::ready_test {
namespace {

namespace fs = std::filesystem;

class Ready : public testing::Test {
 protected:
  Ready() { fs::create_directories(folder_); }
  ~Ready() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text << "\n";
  }
  Question first(const std::string& name) const {
    const Task task =
        Task::read(tests::source_folder() / "inputs/tasks" / (name + ".toml"), folder_);
    return questions_of(task, 1).front();
  }

  fs::path folder_ = fs::temp_directory_path() / ("finetune-ready-" + std::to_string(::getpid()));
};

TEST_F(Ready, Mmlu) {
  write("mmlu.jsonl",
        R"({"question": "Two? ", "subject": "s", "choices": ["1","2","3","4"], "answer": 1})");
  const Question one = first("mmlu");
  EXPECT_EQ(one.prompts[0], "Two?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:");
  EXPECT_EQ(one.continuations[1], " B");
  EXPECT_EQ(one.right, 1);
}

TEST_F(Ready, Arc) {
  write(
      "arc.jsonl",
      R"({"id": "x", "question": "Q?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"})");
  const Question one = first("arc");
  EXPECT_EQ(one.prompts[0], "Question: Q?\nAnswer:");
  EXPECT_EQ(one.continuations, (std::vector<std::string>{" a", " b"}));
  EXPECT_EQ(one.right, 1);
}

TEST_F(Ready, HellaSwag) {
  write(
      "hellaswag.jsonl",
      R"({"activity_label": "Swimming", "ctx_a": "A man swims.", "ctx_b": "he", "endings": ["sinks.", "wins."], "label": "1"})");
  const Question one = first("hellaswag");
  EXPECT_EQ(one.prompts[0] + one.continuations[1], "Swimming: A man swims. He wins.");
  EXPECT_EQ(one.right, 1);
}

TEST_F(Ready, WinoGrande) {
  write("winogrande.jsonl",
        R"({"sentence": "The _ was hot.", "option1": "sun", "option2": "moon", "answer": "1"})");
  const Question one = first("winogrande");
  EXPECT_EQ(one.prompts[1] + one.continuations[1], "The moon was hot.");
  EXPECT_EQ(one.right, 0);
}

TEST_F(Ready, TruthfulQa) {
  write(
      "truthfulqa.jsonl",
      R"({"question": "Q?", "mc1_targets": {"choices": ["a", "b"], "labels": [1, 0]}, "mc2_targets": {"choices": ["a", "b", "c"], "labels": [1, 0, 1]}})");
  EXPECT_EQ(first("truthfulqa_mc1").right, 0);
  EXPECT_EQ(first("truthfulqa_mc2").all_right, (std::vector<std::int64_t>{1, 0, 1}));
}

TEST_F(Ready, Gsm8k) {
  write("test.jsonl", R"({"question": "How many?", "answer": "3 + 4 = 7\n#### 7"})");
  std::string examples;
  for (int i = 0; i < 5; ++i)
    examples += R"({"question": "One?", "answer": "#### 1"})"
                "\n";
  write("train.jsonl", examples);
  const Question one = first("gsm8k");
  EXPECT_TRUE(one.prompt.starts_with("Question: One?\nAnswer: #### 1\n\nQuestion: One?"));
  EXPECT_TRUE(one.prompt.ends_with("\n\nQuestion: How many?\nAnswer:"));
}

TEST_F(Ready, IfEval) {
  write(
      "ifeval.jsonl",
      R"({"key": 1, "prompt": "Say it.", "instruction_id_list": ["punctuation:no_comma", "startend:end_checker"], "kwargs": [{"num_words": null}, {"end_phrase": "It."}]})");
  const Question one = first("ifeval");
  EXPECT_EQ(one.prompt, "Say it.");
  EXPECT_EQ(Instructions::read(one.answer, "test").strict("Yes, that is it."),
            (std::vector<double>{0, 1}));
  write(
      "ifeval.jsonl",
      R"({"prompt": "Auf Deutsch.", "instruction_id_list": ["language:response_language"], "kwargs": [{"language": "de"}]})");
  EXPECT_THROW(first("ifeval"), core::Error) << "nothing is left to judge";
}

TEST_F(Ready, JsonAndTexts) {
  write("prompts.jsonl", R"({"prompt": "Give JSON.", "names": ["a"]})");
  EXPECT_EQ(first("ifeval_json").answer, R"(["a"])");
  write("texts.jsonl", R"({"text": "Once."})");
  EXPECT_EQ(first("texts").prompt, "Once.");
}

}  // namespace
}  // namespace finetune::tasks::ready_test
