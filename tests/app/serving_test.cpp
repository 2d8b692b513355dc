// SPDX-License-Identifier: Apache-2.0
#include "serving.hpp"
#include "support/messages.hpp"

#include <gtest/gtest.h>

namespace finetune::app {
namespace {

using finetune::tests::expect_message;

core::Json lora(const core::Json& changes = core::Json::object()) {
  core::Json config = {{"peft_type", "LORA"},
                       {"r", 16},
                       {"rank_pattern", core::Json::object()},
                       {"use_dora", false},
                       {"modules_to_save", nullptr}};
  config.update(changes);
  return config;
}

std::string only_note(const core::Json& config) {
  const auto notes = vllm_notes(config);
  EXPECT_EQ(notes.size(), 1u);
  return notes.empty() ? "" : notes.front();
}

TEST(VllmNotes, AreNoneOfWhatItReads) {
  EXPECT_TRUE(vllm_notes(lora()).empty());
  EXPECT_TRUE(vllm_notes(lora({{"use_rslora", true}})).empty());
  EXPECT_TRUE(vllm_notes(lora({{"modules_to_save", core::Json::array()}})).empty());
}

TEST(VllmNotes, NameWhatItDoesNotRead) {
  expect_message(only_note(lora({{"use_dora", true}})), "vLLM reads no DoRA", {"--merge"});
  EXPECT_NE(only_note(lora({{"modules_to_save", {"lm_head"}}})).find("[\"lm_head\"]"),
            std::string::npos);
  EXPECT_NE(only_note(lora({{"peft_type", "IA3"}})).find("not \"IA3\""), std::string::npos);
  expect_message(only_note(lora({{"r", 1024}})), "", {"512"});
}

TEST(VllmNotes, SayWhichRankItIsToBeToldOf) {
  EXPECT_NE(only_note(lora({{"r", 32}})).find("--max-lora-rank 32"), std::string::npos);
  const auto notes = vllm_notes(lora({{"rank_pattern", {{"q_proj", 64}}}}));
  ASSERT_EQ(notes.size(), 2u);
  expect_message(notes[0], "", {"rank_pattern"});
  EXPECT_NE(notes[1].find("--max-lora-rank 64"), std::string::npos);
}

}  // namespace
}  // namespace finetune::app
