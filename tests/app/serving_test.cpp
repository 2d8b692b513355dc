// SPDX-License-Identifier: Apache-2.0
#include "serving.hpp"

#include <gtest/gtest.h>

namespace finetune::app {
namespace {

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
  EXPECT_EQ(only_note(lora({{"use_dora", true}})), "vLLM reads no DoRA: export with --merge");
  EXPECT_NE(only_note(lora({{"modules_to_save", {"lm_head"}}})).find("[\"lm_head\"]"),
            std::string::npos);
  EXPECT_NE(only_note(lora({{"peft_type", "IA3"}})).find("not \"IA3\""), std::string::npos);
  EXPECT_NE(only_note(lora({{"r", 1024}})).find("up to 512"), std::string::npos);
}

TEST(VllmNotes, SayWhichRankItIsToBeToldOf) {
  EXPECT_NE(only_note(lora({{"r", 32}})).find("--max-lora-rank 32"), std::string::npos);
  const auto notes = vllm_notes(lora({{"rank_pattern", {{"q_proj", 64}}}}));
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find("no notice of rank_pattern"), std::string::npos);
  EXPECT_NE(notes[1].find("--max-lora-rank 64"), std::string::npos);
}

}  // namespace
}  // namespace finetune::app
