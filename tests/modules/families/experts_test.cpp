// SPDX-License-Identifier: Apache-2.0
// Experts that a softmax weighs: what published configurations say of them, and what is refused.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "modules/families/configs.hpp"

namespace finetune::config_experts_test {
namespace {

using namespace tests::configs;

core::Json ernie() {
  return published("ERNIE-4.5-21B-A3B");
}

/// The large one: no expert is shared.
core::Json large_ernie() {
  core::Json config = ernie();
  config.update({{"hidden_size", 8192},
                 {"intermediate_size", 28672},
                 {"num_hidden_layers", 54},
                 {"num_attention_heads", 64},
                 {"num_key_value_heads", 8},
                 {"moe_intermediate_size", 3584},
                 {"moe_k", 8},
                 {"moe_num_shared_experts", 0},
                 {"moe_layer_start_index", 3},
                 {"moe_layer_end_index", 53},
                 {"tie_word_embeddings", false}});
  return config;
}

std::vector<std::int64_t> layers_with_experts(const core::Json& config) {
  std::vector<std::int64_t> layers;
  const model::Architecture a = identify(config).architecture;
  for (std::int64_t i = 0; i < a.num_layers; ++i)
    if (a.layer(i).has_experts) layers.push_back(i);
  return layers;
}

/// Their makers say 21 and 300 thousand million.
TEST(ConfigsOfErnie, HaveTheParametersThatTheirMakersCount) {
  EXPECT_NEAR(static_cast<double>(table_of(ernie()).num_parameters()), 21.83e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(table_of(large_ernie()).num_parameters()), 299.5e9, 0.1e9);
}

/// Some names and shapes of the published indices.
TEST(ConfigsOfErnie, NameTensorsAsPublished) {
  expect_tensors(ernie(), {{"model.layers.0.mlp.gate_proj.weight", {12288, 2560}},
                           {"model.layers.0.self_attn.q_proj.weight", {2560, 2560}},
                           {"model.layers.1.mlp.gate.weight", {64, 2560}},
                           {"model.layers.1.mlp.moe_statics.e_score_correction_bias", {1, 64}},
                           {"model.layers.27.mlp.experts.63.down_proj.weight", {2560, 1536}},
                           {"model.layers.27.mlp.shared_experts.up_proj.weight", {3072, 2560}}});
  EXPECT_EQ(table_of(ernie()).foreign.front(), "model.mtp_") << "predicts more tokens";
}

TEST(ConfigsOfErnie, SayWhichLayersHaveExperts) {
  core::Json config = ernie();
  config["num_hidden_layers"] = 6;
  config["moe_layer_start_index"] = 2;
  config["moe_layer_end_index"] = -1;
  EXPECT_EQ(layers_with_experts(config), (std::vector<std::int64_t>{2, 3, 4, 5}));
  config["moe_layer_end_index"] = 4;
  EXPECT_EQ(layers_with_experts(config), (std::vector<std::int64_t>{2, 3, 4}));
  config["moe_layer_interval"] = 2;
  EXPECT_EQ(layers_with_experts(config), (std::vector<std::int64_t>{3}));
}

TEST(ConfigsOfErnie, LeaveOutWhatTransformersAdds) {
  for (const char* family : {"ernie4_5", "ernie4_5_moe"}) {
    core::Json config = ernie();
    config["model_type"] = family;
    for (const char* key : {"rms_norm_eps", "rope_theta", "tie_word_embeddings"})
      config.erase(key);
    const model::Architecture a = identify(config).architecture;
    EXPECT_EQ(a.norm_eps, 1e-5);
    EXPECT_EQ(a.rope_theta, 500000);
    EXPECT_TRUE(a.tied_embeddings);
  }
}

TEST(ConfigsOfErnie, AreRefusedByTheKeyThatIsNotComputed) {
  expect_refused(ernie(), "use_bias", true);
  expect_refused(ernie(), "moe_gate_act", "sigmoid");
  expect_refused(ernie(), "moe_use_aux_free", false);
  expect_refused(ernie(), "moe_k", 65);
  expect_refused(ernie(), "moe_num_shared_experts", -1);
}

core::Json hunyuan() {
  return published("Hunyuan-A13B");
}

/// Their makers say 80 thousand million.
TEST(ConfigsOfHunyuan, HaveTheParametersThatTheirMakersCount) {
  EXPECT_NEAR(static_cast<double>(table_of(hunyuan()).num_parameters()), 80.39e9, 0.01e9);
}

/// Some names and shapes of the published index.
TEST(ConfigsOfHunyuan, NameTensorsAsPublished) {
  expect_tensors(hunyuan(), {{"model.layers.0.mlp.gate.wg.weight", {64, 4096}},
                             {"model.layers.0.self_attn.query_layernorm.weight", {128}},
                             {"model.layers.31.mlp.experts.63.down_proj.weight", {4096, 3072}},
                             {"model.layers.31.mlp.shared_mlp.up_proj.weight", {3072, 4096}}});
}

TEST(ConfigsOfHunyuan, HaveOneNumberForAllLayersOrAList) {
  core::Json config = hunyuan();
  EXPECT_EQ(identify(config).architecture.experts.top_k, 8);
  config["moe_topk"] = 4;
  EXPECT_EQ(identify(config).architecture.experts.top_k, 4);
  for (const core::Json& list :
       {core::Json::array({8, 4}), core::Json::array(), core::Json::array({0, 0})})
    expect_refused(config, "moe_topk", list);
}

TEST(ConfigsOfHunyuan, AreRefusedByTheKeyThatIsNotComputed) {
  expect_refused(hunyuan(), "use_cla", true);
  expect_refused(hunyuan(), "use_qk_norm", false);
  expect_refused(hunyuan(), "use_mixed_mlp_moe", false);
  expect_refused(hunyuan(), "norm_topk_prob", false);
  expect_refused(hunyuan(), "moe_layer_num_skipped", 1);
  expect_refused(hunyuan(), "num_shared_expert", 2);
  expect_refused(hunyuan(), "moe_intermediate_size", 1024);
  expect_refused(hunyuan(), "moe_topk", 65);
}

core::Json granite() {
  return published("granite-3.0-3b-a800m");
}

/// Its makers say 3.3 thousand million.
TEST(ConfigsOfGranite, HaveTheParametersThatTheirMakersCount) {
  EXPECT_NEAR(static_cast<double>(table_of(granite()).num_parameters()), 3.30e9, 0.01e9);
}

/// Some names and shapes of the published index.
TEST(ConfigsOfGranite, NameTensorsAsPublished) {
  core::Json config = granite();
  const Tensors tensors = {
      {"model.layers.0.block_sparse_moe.router.layer.weight", {40, 1536}},
      {"model.layers.31.block_sparse_moe.input_linear.weight", {40, 1024, 1536}},
      {"model.layers.31.block_sparse_moe.output_linear.weight", {40, 1536, 512}}};
  expect_tensors(config, tensors);
  config["model_type"] = "granitemoeshared";
  expect_tensors(config, tensors);
  EXPECT_EQ(identify(config).architecture.experts.d_shared, 0);
  config["shared_intermediate_size"] = 1024;
  expect_tensors(config, {{"model.layers.31.shared_mlp.input_linear.weight", {2048, 1536}},
                          {"model.layers.31.shared_mlp.output_linear.weight", {1536, 1024}}});
}

TEST(ConfigsOfGranite, AreRefusedByTheKeyThatIsNotComputed) {
  expect_refused(granite(), "num_experts_per_tok", 41);
  core::Json config = granite();
  config["model_type"] = "granitemoeshared";
  expect_refused(config, "shared_intermediate_size", -1);
}

}  // namespace
}  // namespace finetune::config_experts_test
