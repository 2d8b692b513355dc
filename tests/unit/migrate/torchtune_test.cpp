// SPDX-License-Identifier: Apache-2.0
// torchtune: how its tokenizers write messages, and what its data sets say.
#include <gtest/gtest.h>

#include "unit/migrate/sample.hpp"

namespace finetune::migrate::tests::torchtune_test {
namespace {

/// A recipe with these lines below `tokenizer`, and this data set.
std::string recipe(const std::string& tokenizer, const std::string& dataset,
                   const std::string& rest = "") {
  return "model: {_component_: torchtune.models.llama3.llama3_8b}\n"
         "checkpointer: {checkpoint_dir: m}\n"
         "tokenizer:\n  _component_: torchtune.models." +
         tokenizer + "dataset:\n  _component_: torchtune.datasets." + dataset + rest;
}

const std::string pairs =
    "instruct_dataset\n  source: json\n  data_files: d.json\n"
    "  column_map: {input: question, output: answer}\n";
const std::string chats =
    "chat_dataset\n  source: json\n  data_files: d.json\n"
    "  conversation_column: conversations\n  conversation_style: sharegpt\n";

TEST(MigrateTorchtune, WritesPairsAsTheTokenizerWritesMessages) {
  for (const char* model :
       {"llama3.llama3_tokenizer\n", "qwen2_5.qwen2_5_tokenizer\n", "phi3.phi3_mini_tokenizer\n"}) {
    const std::string made = deck(recipe(model, pairs));
    EXPECT_TRUE(has_line(made, "format = \"completion\"")) << made;
    EXPECT_TRUE(has_line(made, "template = \"model\"")) << made;
    EXPECT_TRUE(has_line(made, "prompt_column = \"question\"")) << made;
    EXPECT_TRUE(has_line(made, "answer_column = \"answer\"")) << made;
    EXPECT_EQ(made.find("train_on"), std::string::npos) << made;
  }
  EXPECT_TRUE(has_line(deck(recipe("llama3.llama3_tokenizer\n", "samsum_dataset\n")),
                       "template = \"model\""));
}

TEST(MigrateTorchtune, KnowsTheTemplatesThatItsTokenizersBring) {
  // Base models have no template of their own.
  EXPECT_TRUE(has_line(deck(recipe("llama2.llama2_tokenizer\n", pairs)), "template = \"llama2\""));
  EXPECT_TRUE(
      has_line(deck(recipe("mistral.mistral_tokenizer\n", chats)), "template = \"mistral-v1\""));
  EXPECT_TRUE(has_line(deck(recipe("gemma.gemma_tokenizer\n  prompt_template: "
                                   "torchtune.data.ChatMLTemplate\n",
                                   pairs)),
                       "template = \"chatml\""));
  const std::string other = deck(recipe(
      "llama3.llama3_tokenizer\n  prompt_template: torchtune.data.SummarizeTemplate\n", pairs));
  EXPECT_NE(other.find("#   tokenizer.prompt_template = torchtune.data.SummarizeTemplate: "),
            std::string::npos)
      << other;
}

TEST(MigrateTorchtune, LeavesTextsAloneWhereTheTokenizerDoes) {
  for (const char* model :
       {"gemma.gemma_tokenizer\n", "llama2.llama2_tokenizer\n  prompt_template: null\n"}) {
    const std::string made = deck(recipe(model, pairs));
    EXPECT_EQ(made.find("\ntemplate"), std::string::npos) << made;
    EXPECT_NE(deck(recipe(model, chats)).find("it joins them as they stand"), std::string::npos);
  }
  EXPECT_EQ(deck(recipe("llama3.llama3_tokenizer\n", "text_completion_dataset\n  source: d\n"))
                .find("\ntemplate"),
            std::string::npos);
}

TEST(MigrateTorchtune, ListsWhatItsDataSetsSayBesides) {
  const std::string made =
      deck(recipe("llama3.llama3_tokenizer\n",
                  pairs + "  new_system_prompt: Be brief.\n  train_on_input: True\n  name: en\n"
                          "  filter_fn: f\n"));
  EXPECT_TRUE(has_line(made, "train_on = \"all\"")) << made;
  EXPECT_TRUE(has_line(made, "subset = \"en\"")) << made;
  EXPECT_NE(made.find("#   dataset.new_system_prompt = Be brief.: "), std::string::npos) << made;
  EXPECT_NE(made.find("#   dataset.filter_fn = f: "), std::string::npos) << made;
}

TEST(MigrateTorchtune, UpdatesInBackwardWhereItDoes) {
  const auto with = [&](const char* value) {
    return deck(recipe("llama3.llama3_tokenizer\n", pairs,
                       std::string("optimizer_in_bwd: ") + value + "\n"));
  };
  EXPECT_TRUE(has_line(with("True"), "in_backward = true  # optimizer_in_bwd")) << with("True");
  EXPECT_TRUE(has_line(with("False"), "in_backward = false  # optimizer_in_bwd")) << with("False");
}

}  // namespace
}  // namespace finetune::migrate::tests::torchtune_test
