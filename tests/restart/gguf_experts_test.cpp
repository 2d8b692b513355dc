// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts as files of llama.cpp: stacked matrices, what the header says, refusals.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/json.hpp"
#include "restart/gguf_files.hpp"
#include "restart/job.hpp"

namespace finetune::tests::gguf_experts_test {
namespace {

namespace fs = std::filesystem;

/// The least of each kind that llama.cpp computes, for the quickstart's tokenizer.
core::Json config_of(const std::string& family) {
  core::Json config = {{"model_type", family},
                       {"vocab_size", 1280},
                       {"hidden_size", 64},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"intermediate_size", 96},
                       {"hidden_act", "silu"},
                       {"rms_norm_eps", 1e-6},
                       {"rope_theta", 10000.0},
                       {"max_position_embeddings", 512},
                       {"initializer_range", 0.06},
                       {"num_experts_per_tok", 2},
                       {"tie_word_embeddings", false},
                       {"bos_token_id", 1278},
                       {"eos_token_id", 1279},
                       {"torch_dtype", "float32"}};
  if (family == "mixtral")
    config.update({{"architectures", {"MixtralForCausalLM"}}, {"num_local_experts", 4}});
  if (family == "qwen3_moe")
    config.update({{"architectures", {"Qwen3MoeForCausalLM"}},
                   {"num_experts", 5},
                   {"head_dim", 16},
                   {"moe_intermediate_size", 32},
                   {"norm_topk_prob", true}});
  if (family == "olmoe")
    config.update({{"architectures", {"OlmoeForCausalLM"}},
                   {"num_experts", 4},
                   {"num_key_value_heads", 4},
                   {"norm_topk_prob", false}});
  return config;
}

/// A folder `exported` with what a short run made of random weights.
Job pretrained(const std::string& family, const std::string& part) {
  Job job("gguf_experts." + family + part,
          {"model.init=random", "data.path=text.txt", "data.format=text", "data.max_seq_length=64",
           "precision.mode=32-true", "train.max_steps=30", "train.global_batch=8",
           "train.micro_batch=4", "optimizer.lr=5e-3", "checkpoint.save_steps=0"});
  fs::remove(job.model() / "model.safetensors");
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(quickstart_model() / file, job.model() / file,
                  fs::copy_options::overwrite_existing);
  write_file(job.model() / "config.json", config_of(family).dump());
  std::string text;
  for (int i = 0; i < 160; ++i)
    text += "After " + std::to_string(i) + " comes " + std::to_string(i + 1) + ".\n";
  write_file(job.folder() / "text.txt", text);
  const Outcome outcome = job.run(1);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_FALSE(job.exported().empty());
  return job;
}

class GgufOfExperts : public testing::TestWithParam<const char*> {};

TEST_P(GgufOfExperts, IsWhatThePackageReads) {
  const Job job = pretrained(GetParam(), ".read");
  const fs::path& folder = job.folder();
  for (const char* dtype : {"float32", "bfloat16", "q8_0"}) {
    const std::string file = std::string(dtype) + ".gguf";
    const Outcome outcome = exported_gguf(folder, "exported", file, dtype);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
    EXPECT_EQ(count(read_file(folder / file), "blk.1.ffn_gate_exps.weight"), 1) << dtype;
    if (has_gguf_reader(folder)) expect_read_gguf(folder, file, "exported");
  }
}

TEST_P(GgufOfExperts, HasTheSameGreedyTextInLlamaCpp) {
  const Job job = pretrained(GetParam(), ".run");
  if (!has_llama_cpp(job.folder())) GTEST_SKIP() << "no Python with llama_cpp here";
  expect_same_greedy_text(job.folder(), job.folder() / "exported", "After 17 comes");
}

INSTANTIATE_TEST_SUITE_P(Kinds, GgufOfExperts, testing::Values("mixtral", "olmoe", "qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

// How the weights of experts are shared out is in llama.cpp's code, not in its files.
TEST(GgufOfExpertsRefuses, WhatItsReadersWouldComputeOtherwise) {
  const std::pair<const char*, core::Json> changes[] = {
      {"norm_topk_prob is false", {{"model_type", "qwen3_moe"}, {"norm_topk_prob", false}}},
      {"norm_topk_prob is true", {{"model_type", "olmoe"}, {"norm_topk_prob", true}}},
      {"some of its layers have no experts",
       {{"model_type", "qwen3_moe"}, {"mlp_only_layers", {1}}}},
      {"fewer key heads than heads", {{"model_type", "olmoe"}, {"num_key_value_heads", 2}}},
      {"fewer key heads than heads", {{"model_type", "olmoe"}, {"tie_word_embeddings", true}}},
      {"see a window", {{"model_type", "mixtral"}, {"sliding_window", 8}}}};
  const Job job("gguf_experts.refused", {});
  for (const auto& [part, change] : changes) {
    core::Json config = config_of(change.at("model_type"));
    config.update(change);
    write_file(job.model() / "config.json", config.dump());
    const Outcome outcome = exported_gguf(job.folder(), "model", "no.gguf", "float16");
    EXPECT_EQ(outcome.exit_code, 65) << outcome.text();
    EXPECT_EQ(count(outcome.text(), part), 1) << outcome.text();
    EXPECT_FALSE(fs::exists(job.folder() / "no.gguf"));
  }
}

}  // namespace
}  // namespace finetune::tests::gguf_experts_test
