// SPDX-License-Identifier: Apache-2.0
// What configurations of models say whose layers are one mixer each.
#include "model/part.hpp"
#include "modules/families/configs.hpp"

namespace finetune::states_test {
namespace {

using namespace tests::configs;

/// Nemotron-H 8B.
const core::Json dense = {
    {"model_type", "nemotron_h"},
    {"vocab_size", 131072},
    {"hidden_size", 4096},
    {"intermediate_size", 21504},
    {"num_hidden_layers", 52},
    {"hybrid_override_pattern", "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"},
    {"num_attention_heads", 32},
    {"num_key_value_heads", 8},
    {"attention_head_dim", 128},
    {"mamba_num_heads", 128},
    {"mamba_head_dim", 64},
    {"n_groups", 8},
    {"ssm_state_size", 128},
    {"conv_kernel", 4},
    {"time_step_limit", {0.0, "Infinity"}},
    {"layer_norm_epsilon", 1e-5},
    {"mlp_hidden_act", "relu2"},
    {"max_position_embeddings", 8192}};

/// Nemotron 3 Nano 30B-A3B.
core::Json with_experts() {
  core::Json config = dense;
  config.update(core::Json{
      {"hidden_size", 2688},
      {"num_key_value_heads", 2},
      {"hybrid_override_pattern", "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"},
      {"mamba_num_heads", 64},
      {"n_routed_experts", 128},
      {"num_experts_per_tok", 6},
      {"moe_intermediate_size", 1856},
      {"moe_shared_expert_intermediate_size", 3712},
      {"routed_scaling_factor", 2.5},
      {"moe_latent_size", nullptr}});
  config.erase("intermediate_size");
  return config;
}

/// Counted by others of the published weights: 8,100,852,736, and 31.6 thousand million.
TEST(ConfigsOfMixers, HaveTheParametersThatArePublished) {
  EXPECT_EQ(table_of(dense).num_parameters(), 8'100'852'736);
  EXPECT_NEAR(static_cast<double>(table_of(with_experts()).num_parameters()), 31.58e9, 0.01e9);
}

TEST(ConfigsOfMixers, NameTensorsAsPublished) {
  expect_tensors(dense, {{"backbone.embeddings.weight", {131072, 4096}},
                         {"backbone.layers.0.norm.weight", {4096}},
                         {"backbone.layers.0.mixer.in_proj.weight", {18560, 4096}},
                         {"backbone.layers.0.mixer.conv1d.weight", {10240, 1, 4}},
                         {"backbone.layers.0.mixer.conv1d.bias", {10240}},
                         {"backbone.layers.0.mixer.A_log", {128}},
                         {"backbone.layers.0.mixer.D", {128}},
                         {"backbone.layers.0.mixer.dt_bias", {128}},
                         {"backbone.layers.0.mixer.norm.weight", {8192}},
                         {"backbone.layers.0.mixer.out_proj.weight", {4096, 8192}},
                         {"backbone.layers.1.mixer.up_proj.weight", {21504, 4096}},
                         {"backbone.layers.1.mixer.down_proj.weight", {4096, 21504}},
                         {"backbone.layers.7.mixer.q_proj.weight", {4096, 4096}},
                         {"backbone.layers.7.mixer.k_proj.weight", {1024, 4096}},
                         {"backbone.norm_f.weight", {4096}},
                         {"lm_head.weight", {131072, 4096}}});
  const std::string layer = "backbone.layers.1.mixer.";
  expect_tensors(with_experts(), {{layer + "gate.weight", {128, 2688}},
                                  {layer + "gate.e_score_correction_bias", {128}},
                                  {layer + "experts.127.up_proj.weight", {1856, 2688}},
                                  {layer + "experts.127.down_proj.weight", {2688, 1856}},
                                  {layer + "shared_experts.up_proj.weight", {3712, 2688}}});
  for (const model::Parameter& row : table_of(with_experts()).rows)
    EXPECT_EQ(row.name.find("gate_proj"), std::string::npos) << row.name;
}

/// A letter for each.
std::string layers_of(const core::Json& config) {
  const model::Architecture a = identify(config).architecture;
  std::string letters;
  for (const model::Layer& layer : a.layers) {
    EXPECT_FALSE(layer.has_both_halves());
    letters += layer.has_state_space      ? 'M'
               : layer.has_attention_half ? '*'
               : layer.has_experts        ? 'E'
                                          : '-';
  }
  return letters;
}

TEST(ConfigsOfMixers, SayWhatEachLayerIs) {
  EXPECT_EQ(layers_of(dense), dense["hybrid_override_pattern"].get<std::string>());
  core::Json config = with_experts();
  config["num_hidden_layers"] = nullptr;
  config["layers_block_type"] = {"linear_attention", "full_attention", "mlp", "moe"};
  EXPECT_EQ(layers_of(config), "M*-E") << "the list, not the pattern";
  config["layers_block_type"] = {"mamba", "attention", "moe"};
  EXPECT_EQ(layers_of(config), "M*E") << "as transformers 4 calls them";
}

TEST(ConfigsOfMixers, LimitSteps) {
  const auto limits = [](const core::Json& told) {
    core::Json config = dense;
    config["time_step_limit"] = told;
    const model::StateHeads heads = identify(config).architecture.states;
    return std::pair{heads.least_step, heads.most_step};
  };
  const double none = std::numeric_limits<double>::infinity();
  EXPECT_EQ(limits({0.0, "Infinity"}), std::pair(0.0, none));
  EXPECT_EQ(limits({0.01, {{"__float__", "Infinity"}}}), std::pair(0.01, none));
  EXPECT_EQ(limits({0.01, 0.5}), std::pair(0.01, 0.5));
  EXPECT_EQ(limits(nullptr), std::pair(0.0, none));
}

/// Heads of a group read the same channels, and samples are not cut.
TEST(ConfigsOfMixers, ShareGroupsAndNoSequences) {
  EXPECT_TRUE(model::remembers(table_of(dense)));
  EXPECT_EQ(model::why_not(table_of(dense), 8), "");
  EXPECT_NE(model::why_not(table_of(dense), 16).find("mixer.in_proj.weight"), std::string::npos);
  EXPECT_EQ(model::why_not(table_of(with_experts()), 8), "");
  core::Json config = dense;
  config.erase("num_hidden_layers");
  config["hybrid_override_pattern"] = "*-";
  EXPECT_FALSE(model::remembers(table_of(config)));
}

TEST(ConfigsOfMixers, AreRefusedByTheKeyThatIsNotComputed) {
  expect_refused(dense, "hybrid_override_pattern", "M-X");
  expect_refused(dense, "hybrid_override_pattern", "");
  expect_refused(dense, "num_hidden_layers", 51);
  expect_refused(dense, "layers_block_type", core::Json::array({"sliding_attention"}));
  expect_refused(dense, "mamba_num_heads", 100);
  expect_refused(dense, "mamba_hidden_act", "gelu");
  expect_refused(dense, "mlp_hidden_act", "silu");
  expect_refused(dense, "use_bias", true);
  expect_refused(dense, "mamba_proj_bias", true);
  expect_refused(dense, "mlp_bias", true);
  expect_refused(dense, "attention_bias", true);
  expect_refused(dense, "use_conv_bias", false);
  expect_refused(dense, "sliding_window", 1024);
  expect_refused(dense, "time_step_limit", core::Json::array({0.1}));
  expect_refused(dense, "time_step_limit", core::Json::array({0.1, 0.1}));
  expect_refused(dense, "time_step_limit", core::Json::array({-0.1, 1.0}));
  expect_refused(dense, "mamba_head_dim", std::int64_t{1} << 41);
  expect_refused(with_experts(), "moe_latent_size", 1024);
  expect_refused(with_experts(), "num_experts_per_tok", 129);
}

}  // namespace
}  // namespace finetune::states_test
