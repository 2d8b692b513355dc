// SPDX-License-Identifier: Apache-2.0
// Adapters out, of what transformers calls otherwise than the files, or has in other tensors:
// heads, embeddings that are the head as well, experts.
#include <gtest/gtest.h>

#include "restart/adapter_job.hpp"

namespace finetune::tests::adapter_parts_test {
namespace {

using namespace adapter_job;

struct Parts {
  std::string family;
  std::string name;
  Words more;
};

class AdapterExportOfParts : public testing::TestWithParam<Parts> {};

TEST_P(AdapterExportOfParts, PeftAndWeAgreeOnAdapterAndMergedModel) {
  Words words = settings({"adapter.lora_r=4"});
  words.insert(words.end(), GetParam().more.begin(), GetParam().more.end());
  const Job job = family_job(GetParam().family,
                             "adapter_parts." + GetParam().family + "." + GetParam().name, words);
  must(job.run(3));
  must(command(job, {"export", "output", "adapter"}));
  must(command(job, {"export", "output", "merged", "--merge"}));
  const at::Tensor base = logits_of(job.model());
  const at::Tensor adapted = logits_of(job.model(), job.folder() / "adapter");
  EXPECT_GT(largest_difference(base, adapted), 1e-3);
  EXPECT_LT(largest_difference(logits_of(job.folder() / "merged"), adapted), 3e-5);
  if (!has_peft()) GTEST_SKIP() << "no Python with torch, transformers and peft here";
  write_logits(adapted, job);
  const Outcome loaded = python(job, {"load", "model", "adapter", "logits.f32"});
  EXPECT_EQ(loaded.exit_code, 0) << loaded.text();
}

// PEFT takes gate_proj and the like for names of experts' matrices in older files.
constexpr const char* queries = "adapter.target_modules=[\"q_proj\"]";
constexpr const char* nothing = "adapter.target_modules=[]";
constexpr const char* both_of_experts =
    "adapter.target_parameters=[\"mlp.experts.gate_up_proj\", \"mlp.experts.down_proj\"]";
constexpr const char* without_gate =
    "adapter.target_parameters=[\"mixer.experts.up_proj\", \"mixer.experts.down_proj\"]";

INSTANTIATE_TEST_SUITE_P(
    Models, AdapterExportOfParts,
    testing::Values(
        Parts{"llama_tied", "tied", {"adapter.target_modules=[\"embed_tokens\", \"v_proj\"]"}},
        Parts{"gpt2", "tied", {"adapter.target_modules=[\"wte\", \"c_attn\"]"}},
        Parts{"gpt2",
              "saved",
              {"adapter.target_modules=[\"c_attn\"]", "adapter.modules_to_save=[\"wte\"]"}},
        Parts{"gpt_neox",
              "head",
              {"adapter.target_modules=[\"embed_in\", \"embed_out\", \"query_key_value\"]",
               "adapter.rank_pattern=[\"embed_out=2\", \"embed_in=3\"]"}},
        Parts{"gpt_neox",
              "saved",
              {"adapter.target_modules=[\"query_key_value\"]",
               "adapter.modules_to_save=[\"embed_in\", \"embed_out\"]"}},
        Parts{"nemotron_h", "all", {}},
        Parts{"nemotron_h",
              "saved",
              {queries, "adapter.modules_to_save=[\"embeddings\", \"lm_head\"]"}},
        Parts{"nemotron_h", "experts", {queries, without_gate}},
        Parts{"qwen3_moe", "experts", {queries, both_of_experts}},
        Parts{"gpt_oss", "experts", {queries, both_of_experts}},
        Parts{"minimax_m2",
              "experts",
              {nothing, "adapter.target_parameters=[\"experts.down_proj\"]"}},
        Parts{
            "llama4", "experts", {nothing, "adapter.target_parameters=[\"experts.gate_up_proj\"]"}},
        Parts{"granitemoe",
              "experts",
              {queries,
               "adapter.target_parameters=[\"block_sparse_moe.experts.gate_up_proj\", "
               "\"block_sparse_moe.experts.down_proj\"]"}},
        Parts{"gemma4_a4b",
              "experts",
              {queries,
               "adapter.target_parameters=[\"experts.gate_up_proj\", \"experts.down_proj\"]"}},
        Parts{"gemma4_e2b", "all", {}}),
    [](const auto& info) { return info.param.family + "_" + info.param.name; });

/// Names and the list in the message are those of the model.
TEST(ExpertParameters, OfANameThatMeansNoneTheModelsOwnAreTold) {
  const Job job = family_job("granitemoe", "adapter_parts.names",
                             settings({"adapter.target_parameters=[\"mlp.experts.down_proj\"]"}));
  const Outcome outcome = job.run(1);
  EXPECT_EQ(outcome.exit_code, 78) << outcome.text();
  EXPECT_EQ(count(outcome.err,
                  "there are block_sparse_moe.experts.down_proj, "
                  "block_sparse_moe.experts.gate_up_proj"),
            1)
      << outcome.err;
}

TEST(ExpertParameters, ExpertsWithoutAGateHaveNoMatrixOfIt) {
  const Job job =
      family_job("nemotron_h", "adapter_parts.gate",
                 settings({queries, "adapter.target_parameters=[\"mixer.experts.gate_up_proj\"]"}));
  const Outcome outcome = job.run(1);
  EXPECT_EQ(outcome.exit_code, 78) << outcome.text();
  EXPECT_EQ(count(outcome.err, "there are mixer.experts.down_proj, mixer.experts.up_proj"), 1)
      << outcome.err;
}

}  // namespace
}  // namespace finetune::tests::adapter_parts_test
