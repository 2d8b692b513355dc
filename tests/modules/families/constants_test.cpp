// SPDX-License-Identifier: Apache-2.0
// Constants of routers: in fp32 whatever is computed in, never trained, and what configurations say
// of them.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "modules/families/configs.hpp"
#include "registry.hpp"
#include "support/golden.hpp"
#include "support/ranks.hpp"
#include "train/infer/loaded_model.hpp"

namespace finetune::constants_test {
namespace {

using namespace tests::configs;

class Constants : public testing::TestWithParam<const char*> {};

TEST_P(Constants, AreTheFilesToTheBitWhereBf16IsComputed) {
  const auto folder = tests::golden(std::string("models/") + GetParam());
  const auto files = weights::ModelFiles::open(folder);
  train::LoadedModel loaded(folder, modules::registry(), tests::world(), core::DType::bf16);
  shard::ModelShards& shards = loaded.engine().shards;
  int num_found = 0;
  for (const model::BlockRows& block : loaded.parameters().decoder.blocks) {
    const int i = block.experts.correction;
    if (i < 0) continue;
    ++num_found;
    const model::Parameter& row = loaded.parameters().row(i);
    EXPECT_FALSE(row.trainable);
    shards.open(shards.unit_of(i));
    const at::Tensor values = shards.weight({i, 1}).contiguous();
    ASSERT_EQ(values.scalar_type(), at::kFloat) << row.name;
    const auto expected = tests::read_golden<float>(files, row.name);
    ASSERT_EQ(values.numel(), std::ssize(expected));
    EXPECT_EQ(tests::largest_difference({values.data_ptr<float>(), expected.size()}, expected), 0);
    EXPECT_GT(tests::largest_magnitude(expected), 0);
    shards.close(shards.unit_of(i));
  }
  EXPECT_EQ(num_found, 2);
}

INSTANTIATE_TEST_SUITE_P(Models, Constants,
                         testing::Values("deepseek_v3", "ernie4_5_moe", "glm4_moe", "minimax_m2"),
                         [](const auto& info) { return std::string(info.param); });

const core::Json glm_air = {{"model_type", "glm4_moe"},
                            {"vocab_size", 151552},
                            {"hidden_size", 4096},
                            {"intermediate_size", 10944},
                            {"num_hidden_layers", 46},
                            {"num_attention_heads", 96},
                            {"num_key_value_heads", 8},
                            {"head_dim", 128},
                            {"partial_rotary_factor", 0.5},
                            {"attention_bias", true},
                            {"moe_intermediate_size", 1408},
                            {"n_routed_experts", 128},
                            {"n_shared_experts", 1},
                            {"n_group", 1},
                            {"topk_group", 1},
                            {"num_experts_per_tok", 8},
                            {"routed_scaling_factor", 1.0},
                            {"norm_topk_prob", true},
                            {"first_k_dense_replace", 1},
                            {"max_position_embeddings", 131072},
                            {"rope_theta", 1000000},
                            {"use_qk_norm", false}};

const core::Json minimax_m2 = {
    {"model_type", "minimax_m2"}, {"vocab_size", 200064},     {"hidden_size", 3072},
    {"intermediate_size", 1536},  {"num_hidden_layers", 62},  {"num_attention_heads", 48},
    {"num_key_value_heads", 8},   {"head_dim", 128},          {"rotary_dim", 64},
    {"num_local_experts", 256},   {"num_experts_per_tok", 8}, {"max_position_embeddings", 196608},
    {"scoring_func", "sigmoid"},  {"use_qk_norm", true},      {"qk_norm_type", "per_layer"}};

/// Their makers say 106 and 230 thousand million.
TEST(ConfigsWithConstants, HaveTheParametersThatTheirMakersCount) {
  EXPECT_NEAR(static_cast<double>(table_of(glm_air).num_parameters()), 106.85e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(table_of(minimax_m2).num_parameters()), 228.69e9, 0.02e9);
}

/// Some names and shapes of the published indices.
TEST(ConfigsWithConstants, NameTensorsAsPublished) {
  const std::pair<core::Json, Tensors> published[] = {
      {glm_air,
       {{"model.layers.0.mlp.gate_proj.weight", {10944, 4096}},
        {"model.layers.1.mlp.gate.weight", {128, 4096}},
        {"model.layers.1.mlp.gate.e_score_correction_bias", {128}},
        {"model.layers.1.mlp.experts.127.down_proj.weight", {4096, 1408}},
        {"model.layers.45.mlp.shared_experts.up_proj.weight", {1408, 4096}},
        {"model.layers.45.self_attn.k_proj.bias", {1024}}}},
      {minimax_m2,
       {{"model.layers.0.block_sparse_moe.gate.weight", {256, 3072}},
        {"model.layers.0.block_sparse_moe.e_score_correction_bias", {256}},
        {"model.layers.61.block_sparse_moe.experts.255.w1.weight", {1536, 3072}},
        {"model.layers.61.block_sparse_moe.experts.255.w2.weight", {3072, 1536}},
        {"model.layers.61.self_attn.q_norm.weight", {6144}},
        {"model.layers.61.self_attn.k_norm.weight", {1024}}}}};
  for (const auto& [config, tensors] : published)
    expect_tensors(config, tensors);
  EXPECT_EQ(table_of(glm_air).foreign.front(), "model.layers.46.") << "predicts more tokens";
}

TEST(ConfigsWithConstants, TurnAPartOfAHead) {
  EXPECT_EQ(identify(glm_air).architecture.turned_channels(), 64);
  EXPECT_EQ(identify(minimax_m2).architecture.turned_channels(), 64);
  core::Json config = glm_air;
  config.erase("partial_rotary_factor");
  EXPECT_EQ(identify(config).architecture.turned_channels(), 64) << "by default";
}

TEST(ConfigsWithConstants, AreRefusedByTheKeyThatIsNotComputed) {
  const struct {
    const core::Json& config;
    const char* key;
    core::Json value;
  } refused[] = {{glm_air, "n_group", 3},
                 {glm_air, "topk_group", 2},
                 {glm_air, "num_experts_per_tok", 129},
                 {glm_air, "scoring_func", "softmax"},
                 {glm_air, "topk_method", "greedy"},
                 {glm_air, "routed_scaling_factor", 0},
                 {minimax_m2, "scoring_func", "softmax"},
                 {minimax_m2, "rotary_dim", 7},
                 {minimax_m2, "use_qk_norm", false},
                 {minimax_m2, "qk_norm_type", "per_head"},
                 {minimax_m2, "use_routing_bias", false},
                 {minimax_m2, "shared_intermediate_size", 512},
                 {minimax_m2, "attn_type_list", {0, 1}},
                 {minimax_m2, "num_experts_per_tok", 257}};
  for (const auto& [config, key, value] : refused)
    expect_refused(config, key, value);
}

}  // namespace
}  // namespace finetune::constants_test
