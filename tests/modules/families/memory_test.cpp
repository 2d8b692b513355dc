// SPDX-License-Identifier: Apache-2.0
// What configurations of models say whose layers remember.
#include "modules/families/configs.hpp"

namespace finetune::memory_test {
namespace {

using namespace tests::configs;

const core::Json next = {{"model_type", "qwen3_next"},
                         {"vocab_size", 151936},
                         {"hidden_size", 2048},
                         {"intermediate_size", 5120},
                         {"num_hidden_layers", 48},
                         {"num_attention_heads", 16},
                         {"num_key_value_heads", 2},
                         {"head_dim", 256},
                         {"full_attention_interval", 4},
                         {"linear_conv_kernel_dim", 4},
                         {"linear_key_head_dim", 128},
                         {"linear_num_key_heads", 16},
                         {"linear_num_value_heads", 32},
                         {"linear_value_head_dim", 128},
                         {"num_experts", 512},
                         {"num_experts_per_tok", 10},
                         {"moe_intermediate_size", 512},
                         {"shared_expert_intermediate_size", 512},
                         {"norm_topk_prob", true},
                         {"decoder_sparse_step", 1},
                         {"mlp_only_layers", core::Json::array()},
                         {"partial_rotary_factor", 0.25},
                         {"rope_theta", 10000000},
                         {"max_position_embeddings", 262144},
                         {"rms_norm_eps", 1e-6}};

/// Of 3.5 with 27B; what sees is not of these.
const core::Json text = {{"vocab_size", 248320},
                         {"hidden_size", 5120},
                         {"intermediate_size", 17408},
                         {"num_hidden_layers", 64},
                         {"num_attention_heads", 24},
                         {"num_key_value_heads", 4},
                         {"head_dim", 256},
                         {"linear_num_key_heads", 16},
                         {"linear_num_value_heads", 48},
                         {"max_position_embeddings", 262144},
                         {"rms_norm_eps", 1e-6},
                         {"rope_parameters",
                          {{"rope_type", "default"},
                           {"rope_theta", 10000000},
                           {"partial_rotary_factor", 0.25},
                           {"mrope_section", {11, 11, 10}},
                           {"mrope_interleaved", true}}}};
const core::Json whole = {
    {"model_type", "qwen3_5"}, {"text_config", text}, {"tie_word_embeddings", false}};

/// Of 3.5 with 35B.
const core::Json whole_moe = {{"model_type", "qwen3_5_moe"},
                              {"text_config",
                               {{"vocab_size", 248320},
                                {"hidden_size", 2048},
                                {"num_hidden_layers", 40},
                                {"num_attention_heads", 16},
                                {"num_key_value_heads", 2},
                                {"head_dim", 256},
                                {"linear_num_key_heads", 16},
                                {"linear_num_value_heads", 32},
                                {"num_experts", 256},
                                {"num_experts_per_tok", 8},
                                {"moe_intermediate_size", 512},
                                {"shared_expert_intermediate_size", 512},
                                {"max_position_embeddings", 262144},
                                {"rms_norm_eps", 1e-6}}}};

/// Their makers say 80, 27 and 35 thousand million.
TEST(ConfigsThatRemember, HaveTheParametersThatTheirMakersCount) {
  EXPECT_NEAR(static_cast<double>(table_of(next).num_parameters()), 79.67e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(table_of(whole).num_parameters()), 26.9e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(table_of(whole_moe).num_parameters()), 34.66e9, 0.1e9);
}

/// Some names and shapes of the published indices.
TEST(ConfigsThatRemember, NameTensorsAsPublished) {
  expect_tensors(next, {{"model.layers.0.linear_attn.in_proj_qkvz.weight", {12288, 2048}},
                        {"model.layers.0.linear_attn.in_proj_ba.weight", {64, 2048}},
                        {"model.layers.0.linear_attn.conv1d.weight", {8192, 1, 4}},
                        {"model.layers.0.linear_attn.A_log", {32}},
                        {"model.layers.0.linear_attn.out_proj.weight", {2048, 4096}},
                        {"model.layers.0.mlp.shared_expert_gate.weight", {1, 2048}},
                        {"model.layers.3.self_attn.q_proj.weight", {8192, 2048}},
                        {"model.layers.47.mlp.experts.511.down_proj.weight", {2048, 512}}});
  expect_tensors(whole,
                 {{"model.language_model.layers.0.linear_attn.in_proj_qkv.weight", {10240, 5120}},
                  {"model.language_model.layers.0.linear_attn.in_proj_z.weight", {6144, 5120}},
                  {"model.language_model.layers.2.linear_attn.in_proj_a.weight", {48, 5120}},
                  {"model.language_model.layers.2.linear_attn.norm.weight", {128}},
                  {"model.language_model.layers.63.self_attn.q_norm.weight", {256}},
                  {"lm_head.weight", {248320, 5120}}});
  const std::string layer = "model.language_model.layers.0.mlp.";
  expect_tensors(whole_moe, {{layer + "experts.gate_up_proj", {256, 1024, 2048}},
                             {layer + "experts.down_proj", {256, 2048, 512}},
                             {layer + "gate.weight", {256, 2048}},
                             {layer + "shared_expert.down_proj.weight", {2048, 512}}});
  EXPECT_EQ(table_of(next).foreign, std::vector<std::string>{"mtp."}) << "predicts more tokens";
  EXPECT_EQ(table_of(whole).foreign, (std::vector<std::string>{"mtp.", "model.visual."}));
}

TEST(ConfigsThatRemember, SayWhichLayersAttend) {
  const auto attending = [](const core::Json& config) {
    std::vector<std::int64_t> layers;
    const auto identified = identify(config);
    for (std::int64_t i = 0; i < identified.architecture.num_layers; ++i)
      if (!identified.architecture.layer(i).has_delta_rule) layers.push_back(i);
    return layers;
  };
  core::Json config = next;
  config["num_hidden_layers"] = 8;
  EXPECT_EQ(attending(config), (std::vector<std::int64_t>{3, 7}));
  config["num_hidden_layers"] = 3;
  config["layer_types"] = {"full_attention", "linear_attention", "full_attention"};
  EXPECT_EQ(attending(config), (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(identify(next).architecture.turned_channels(), 64);
  EXPECT_EQ(identify(whole).architecture.turned_channels(), 64);
}

TEST(ConfigsThatRemember, AreRefusedByTheKeyThatIsNotComputed) {
  expect_refused(next, "linear_num_value_heads", 24);
  expect_refused(next, "layer_types", core::Json::array({"full_attention"}));
  expect_refused(next, "layer_types", core::Json(std::vector<std::string>(48, "sliding")));
  expect_refused(next, "attention_bias", true);
  expect_refused(next, "num_experts_per_tok", 513);
}

}  // namespace
}  // namespace finetune::memory_test
