// SPDX-License-Identifier: Apache-2.0
// Attention with latents: what published configurations say of it, and who refuses it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "model/part.hpp"
#include "modules/families/configs.hpp"

namespace finetune::latents_test {
namespace {

using namespace tests::configs;

/// DeepSeek 2, the large one.
core::Json deepseek_v2() {
  core::Json config = published("DeepSeek-V2-Lite");
  config.update({{"hidden_size", 5120},
                 {"intermediate_size", 12288},
                 {"num_hidden_layers", 60},
                 {"num_attention_heads", 128},
                 {"num_key_value_heads", 128},
                 {"q_lora_rank", 1536},
                 {"moe_intermediate_size", 1536},
                 {"n_routed_experts", 160},
                 {"n_group", 8},
                 {"topk_group", 3},
                 {"topk_method", "group_limited_greedy"},
                 {"routed_scaling_factor", 16.0}});
  return config;
}

/// Their makers say 16, 236, 671 and 1,000 thousand million.
TEST(ConfigsWithLatents, HaveTheParametersThatTheirMakersCount) {
  const std::pair<core::Json, double> models[] = {{published("DeepSeek-V2-Lite"), 15.7065e9},
                                                  {deepseek_v2(), 235.74e9},
                                                  {published("DeepSeek-V3.1"), 671.03e9},
                                                  {published("Kimi-K2"), 1026.4e9}};
  for (const auto& [config, parameters] : models)
    EXPECT_NEAR(static_cast<double>(table_of(config).num_parameters()), parameters,
                1e-4 * parameters);
}

/// Some names and shapes of the published indices.
TEST(ConfigsWithLatents, NameTensorsAsPublished) {
  const std::pair<const char*, Tensors> models[] = {
      {"DeepSeek-V3.1",
       {{"model.layers.0.self_attn.q_a_proj.weight", {1536, 7168}},
        {"model.layers.0.self_attn.q_a_layernorm.weight", {1536}},
        {"model.layers.0.self_attn.q_b_proj.weight", {24576, 1536}},
        {"model.layers.0.self_attn.kv_a_proj_with_mqa.weight", {576, 7168}},
        {"model.layers.0.self_attn.kv_a_layernorm.weight", {512}},
        {"model.layers.0.self_attn.kv_b_proj.weight", {32768, 512}},
        {"model.layers.0.self_attn.o_proj.weight", {7168, 16384}},
        {"model.layers.2.mlp.gate_proj.weight", {18432, 7168}},
        {"model.layers.3.mlp.gate.e_score_correction_bias", {256}},
        {"model.layers.60.mlp.experts.255.down_proj.weight", {7168, 2048}},
        {"model.layers.60.mlp.shared_experts.up_proj.weight", {2048, 7168}}}},
      {"DeepSeek-V2-Lite",
       {{"model.layers.0.self_attn.q_proj.weight", {3072, 2048}},
        {"model.layers.1.mlp.gate.weight", {64, 2048}},
        {"model.layers.26.mlp.shared_experts.gate_proj.weight", {2816, 2048}}}},
      {"GLM-4.7-Flash",
       {{"model.layers.0.self_attn.q_b_proj.weight", {5120, 768}},
        {"model.layers.46.self_attn.kv_b_proj.weight", {8960, 512}},
        {"model.layers.46.self_attn.o_proj.weight", {2048, 5120}}}}};
  for (const auto& [name, tensors] : models)
    expect_tensors(published(name), tensors);
  EXPECT_EQ(table_of(published("DeepSeek-V3.1")).foreign.front(), "model.layers.61.")
      << "predicts more tokens";
}

TEST(ConfigsWithLatents, AreComputedInHeadsOfTheLargerSize) {
  const model::Architecture v3 = identify(published("DeepSeek-V3.1")).architecture;
  EXPECT_EQ(v3.head_size, 192);
  EXPECT_EQ(v3.value_size(), 128);
  EXPECT_EQ(v3.turned_channels(), 64);
  EXPECT_EQ(v3.layer(0).rotary, model::Rotary::pairs);
  EXPECT_EQ(identify(published("GLM-4.7-Flash")).architecture.head_size, 256);
  core::Json halves = published("DeepSeek-V3.1");
  halves["rope_interleave"] = false;
  EXPECT_EQ(identify(halves).architecture.layer(0).rotary, model::Rotary::halves);
}

/// The factor of DeepSeek's own code; angles are not scaled in addition.
TEST(ConfigsWithLatents, ScaleScoresWithTheContext) {
  const auto scaling = [](const char* name) {
    return identify(published(name)).architecture.rope_scaling;
  };
  EXPECT_NEAR(scaling("DeepSeek-V3.1").score_scale, std::pow(0.1 * std::log(40) + 1, 2), 1e-12);
  EXPECT_NEAR(scaling("DeepSeek-V2-Lite").score_scale, std::pow(0.0707 * std::log(40) + 1, 2),
              1e-12);
  EXPECT_EQ(scaling("DeepSeek-V3.1").amplitude, 1);
  EXPECT_EQ(scaling("GLM-4.7-Flash").score_scale, 1);
}

TEST(ConfigsWithLatents, ChooseExpertsAsTheyWereTrainedTo) {
  const model::Experts lite = identify(published("DeepSeek-V2-Lite")).architecture.experts;
  EXPECT_FALSE(lite.scores_apart || lite.corrects_choice || lite.normalizes);
  EXPECT_EQ(lite.num_groups, 1);
  const model::Experts large = identify(deepseek_v2()).architecture.experts;
  EXPECT_EQ(large.num_groups, 8);
  EXPECT_EQ(large.top_k_groups, 3);
  EXPECT_EQ(large.summed_of_group, 1);
  EXPECT_EQ(large.weight_scale, 16);
  const model::Experts v3 = identify(published("DeepSeek-V3.1")).architecture.experts;
  EXPECT_TRUE(v3.scores_apart && v3.corrects_choice && v3.normalizes);
  EXPECT_EQ(v3.summed_of_group, 2);
}

TEST(ConfigsWithLatents, AreRefusedByTheKeyThatIsNotComputed) {
  const struct {
    const char* model;
    const char* key;
    core::Json value;
  } refused[] = {{"DeepSeek-V3.1", "attention_bias", true},
                 {"DeepSeek-V3.1", "moe_layer_freq", 2},
                 {"DeepSeek-V3.1", "num_key_value_heads", 64},
                 {"DeepSeek-V3.1", "qk_rope_head_dim", 63},
                 {"DeepSeek-V3.1", "kv_lora_rank", nullptr},
                 {"DeepSeek-V3.1", "n_group", 3},
                 {"DeepSeek-V3.1", "scoring_func", "softmax"},
                 {"DeepSeek-V2-Lite", "scoring_func", "sigmoid"},
                 {"DeepSeek-V2-Lite", "topk_method", "noaux_tc"},
                 {"DeepSeek-V2-Lite", "norm_topk_prob", true},
                 {"DeepSeek-V2-Lite", "num_experts_per_tok", 65},
                 {"GLM-4.7-Flash", "partial_rotary_factor", 0.5},
                 {"GLM-4.7-Flash", "mlp_layer_types", {"dense"}}};
  for (const auto& [model, key, value] : refused)
    expect_refused(published(model), key, value);
  core::Json config = published("DeepSeek-V3.1");
  config.erase("q_lora_rank");
  EXPECT_THROW(identify(config), core::Error) << "null would say that there is none";
}

/// Every matrix of attention may have an adapter, under PEFT's names.
TEST(Latents, HaveMatricesForAdapters) {
  const model::ParameterTable table = table_of(published("DeepSeek-V3.1"));
  std::map<std::string, int> found;
  for (const model::Parameter& row : table.rows)
    for (const char* name :
         {".q_a_proj.", ".q_b_proj.", ".kv_a_proj_with_mqa.", ".kv_b_proj.", ".self_attn.o_proj."})
      if (row.name.find(name) != std::string::npos && row.role == model::Role::linear)
        ++found[name];
  EXPECT_EQ(found.size(), 5u);
  for (const auto& [name, count] : found)
    EXPECT_EQ(count, 61) << name;
}

/// What reads the latents is split by heads.
TEST(Latents, AreSharedByUpToAsManyRanksAsThereAreHeads) {
  const auto why_not = [](const char* name, std::int64_t tp) {
    model::ParameterTable table = table_of(published(name));
    return model::why_not(table, tp);
  };
  EXPECT_EQ(why_not("DeepSeek-V3.1", 8), "");
  EXPECT_EQ(why_not("GLM-4.7-Flash", 20), "");
  EXPECT_NE(why_not("GLM-4.7-Flash", 21).find("only 20 heads"), std::string::npos);
  EXPECT_EQ(why_not("DeepSeek-V2-Lite", 1), "");
  EXPECT_NE(why_not("DeepSeek-V2-Lite", 2).find("q_proj"), std::string::npos)
      << "queries are made of the block's input";
}

}  // namespace
}  // namespace finetune::latents_test
