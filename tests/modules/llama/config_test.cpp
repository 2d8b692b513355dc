// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "registry.hpp"

namespace finetune::config_test {
namespace {

core::Json small_config() {
  return {{"model_type", "llama"}, {"hidden_size", 8},         {"intermediate_size", 12},
          {"vocab_size", 10},      {"num_attention_heads", 2}, {"num_hidden_layers", 1},
          {"hidden_act", "silu"},  {"rms_norm_eps", 1e-5},     {"max_position_embeddings", 16}};
}

model::Identified identify(const core::Json& config) {
  return model::identify(config.dump(), "config.json", modules::registry().families);
}

std::string refusal(const core::Json& config) {
  try {
    identify(config);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::input);
    return error.what();
  }
  return "";
}

TEST(LlamaConfig, ReadsRopeOfBothTransformersVersions) {
  core::Json four = small_config();
  four["rope_theta"] = 500000.0;
  four["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 64}};
  core::Json five = small_config();
  five["rope_parameters"] = four["rope_scaling"];
  five["rope_parameters"]["rope_theta"] = 500000.0;
  for (const core::Json& config : {four, five}) {
    const auto a = identify(config).architecture;
    EXPECT_EQ(a.rope_theta, 500000.0);
    EXPECT_EQ(a.rope_scaling.kind, model::RopeScaling::Kind::llama3);
    EXPECT_EQ(a.rope_scaling.factor, 8.0);
    EXPECT_EQ(a.rope_scaling.original_max_positions, 64);
  }
}

TEST(LlamaConfig, RefusesWhatItWouldComputeWrongly) {
  core::Json config = small_config();
  config["hidden_act"] = "quick_gelu";
  EXPECT_NE(refusal(config).find("\"hidden_act\" is \"quick_gelu\""), std::string::npos)
      << refusal(config);
  config = small_config();
  config["rope_scaling"] = {{"rope_type", "spiral"}, {"factor", 2.0}};
  EXPECT_NE(
      refusal(config).find("known: default, linear, dynamic, llama3, yarn, longrope, proportional"),
      std::string::npos)
      << refusal(config);
  config = small_config();
  config["hidden_size"] = -8;
  EXPECT_NE(refusal(config).find("a size from 1"), std::string::npos) << refusal(config);
  config = small_config();
  config["model_type"] = "lama";
  EXPECT_NE(refusal(config).find("Did you mean \"llama\"?"), std::string::npos) << refusal(config);
}

TEST(LlamaConfig, CountsTheParametersOfPublishedModels) {
  core::Json config = small_config();
  config.update({{"hidden_size", 4096},
                 {"intermediate_size", 14336},
                 {"vocab_size", 128256},
                 {"num_attention_heads", 32},
                 {"num_key_value_heads", 8},
                 {"num_hidden_layers", 32},
                 {"max_position_embeddings", 131072}});
  const auto found = identify(config);
  EXPECT_EQ(found.family->describe(found.architecture).num_parameters(),
            8030261248);  // Llama 3.1 8B
}

}  // namespace
}  // namespace finetune::config_test
