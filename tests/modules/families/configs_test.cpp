// SPDX-License-Identifier: Apache-2.0
// Published configurations: parameters are counted as their makers count them, and every tensor of
// a published index belongs to exactly one row.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/error.hpp"
#include "core/file.hpp"
#include "registry.hpp"
#include "support/material.hpp"

namespace finetune::configs_test {
namespace {

model::ParameterTable table_of(const std::filesystem::path& config) {
  const auto identified = model::identify(core::read_text(config, 1 << 20), config.string(),
                                          modules::registry().families);
  return identified.family->describe(identified.architecture);
}

TEST(PublishedConfigurations, HaveTheirParameters) {
  const std::map<std::string, std::int64_t> published = {
      {"Qwen_Qwen2.5-1.5B", 1543714304},
      {"Qwen_Qwen2.5-32B", 32763876352},
      {"Qwen_Qwen2.5-72B", 72706203648},
      {"Qwen_Qwen2.5-7B", 7615616512},
      {"Qwen_Qwen3-0.6B", 596049920},
      {"Qwen_Qwen3-1.7B", 1720574976},
      {"Qwen_Qwen3-30B-A3B", 30532122624},
      {"Qwen_Qwen3-32B", 32762123264},
      {"Qwen_Qwen3-8B", 8190735360},
      {"meta-llama_Llama-3.2-1B", 1235814400},
      {"meta-llama_Llama-3.3-70B-Instruct", 70553706496},
      {"meta-llama_Llama-4-Scout-17B-16E-Instruct", 107769861120},
      {"meta-llama_Meta-Llama-3.1-405B", 405853388800},
      {"meta-llama_Meta-Llama-3.1-70B", 70553706496},
      {"meta-llama_Meta-Llama-3.1-8B", 8030261248},
      {"mistralai_Mistral-7B-Instruct-v0.3", 7248023552},
      {"mistralai_Mistral-Small-24B-Instruct-2501", 23572403200},
      {"mistralai_Mixtral-8x7B-v0.1", 46702792704}};
  REQUIRE_MATERIAL(tests::material("configs/hf"));
  for (const auto& [name, parameters] : published) {
    const auto table = table_of(tests::material("configs/hf/" + name + ".config.json"));
    EXPECT_EQ(table.num_parameters(), parameters) << name;
    std::set<std::string> names;
    for (const model::Parameter& row : table.rows)
      EXPECT_TRUE(names.insert(row.name).second) << name << ": twice " << row.name;
  }
}

TEST(PublishedIndices, AreClaimedToTheLastTensor) {
  // Devstral is a Mistral Small with other weights.
  const std::map<std::string, std::string> config_of_index = {
      {"mistralai_Mistral-7B-Instruct-v0.3", "mistralai_Mistral-7B-Instruct-v0.3"},
      {"mistralai_Mistral-Small-24B-Instruct-2501", "mistralai_Mistral-Small-24B-Instruct-2501"},
      {"mistralai_Devstral-Small-2507", "mistralai_Mistral-Small-24B-Instruct-2501"}};
  REQUIRE_MATERIAL(tests::material("configs/hf"));
  for (const auto& [index, config] : config_of_index) {
    const auto path = tests::material("configs/hf/" + index + ".model.safetensors.index.json");
    const core::Json json = core::parse_json(core::read_text(path, 1 << 20), path.string());
    std::set<std::string> in_file, in_table;
    for (const auto& [name, file] : json.at("weight_map").items())
      in_file.insert(name);
    for (const auto& row : table_of(tests::material("configs/hf/" + config + ".config.json")).rows)
      in_table.insert(row.name);
    EXPECT_EQ(in_table, in_file) << index;
  }
}

// What a published configuration leaves to the family.

core::Json scout() {
  return {{"model_type", "llama4"},
          {"text_config",
           {{"model_type", "llama4_text"},
            {"hidden_size", 8},
            {"intermediate_size", 12},
            {"intermediate_size_mlp", 16},
            {"vocab_size", 10},
            {"num_attention_heads", 2},
            {"num_key_value_heads", 2},
            {"head_dim", 4},
            {"num_hidden_layers", 4},
            {"num_local_experts", 2},
            {"max_position_embeddings", 16}}}};
}

model::Identified identify(const core::Json& config) {
  return model::identify(config.dump(), "config.json", modules::registry().families);
}

TEST(Llama4Config, LeavesOutPositionsInEveryFourthLayer) {
  const auto identified = identify(scout());
  const auto& layers = identified.architecture.layers;
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[2].rotary, model::Rotary::pairs);
  EXPECT_EQ(layers[2].chunk, 8192);
  EXPECT_EQ(layers[3].rotary, model::Rotary::none);
  EXPECT_EQ(layers[3].chunk, 0);
  EXPECT_TRUE(layers[3].tunes_temperature);
  EXPECT_EQ(identified.architecture.rope_theta, 500000);
}

TEST(Llama4Config, NamesTheTextPartAmongOthers) {
  const auto identified = identify(scout());
  const auto table = identified.family->describe(identified.architecture);
  EXPECT_EQ(table.rows.front().name, "language_model.model.embed_tokens.weight");
  EXPECT_EQ(table.foreign.front(), "multi_modal_projector.");
  core::Json alone = scout()["text_config"];
  EXPECT_EQ(identify(alone).family->describe(identify(alone).architecture).rows.front().name,
            "model.embed_tokens.weight");
}

core::Json small(const char* model_type) {
  return {{"model_type", model_type},        {"hidden_size", 8},
          {"intermediate_size", 12},         {"vocab_size", 10},
          {"num_attention_heads", 2},        {"num_key_value_heads", 2},
          {"num_hidden_layers", 3},          {"head_dim", 4},
          {"max_position_embeddings", 16384}};
}

TEST(MistralConfig, HasAWindowUnlessItIsNull) {
  core::Json config = small("mistral");
  EXPECT_EQ(identify(config).architecture.layer(0).window, 4096);
  config["sliding_window"] = nullptr;
  EXPECT_EQ(identify(config).architecture.layer(0).window, 0);
  config["sliding_window"] = 8;
  EXPECT_EQ(identify(config).architecture.layer(2).window, 8);
}

TEST(QwenConfig, UsesItsWindowOnlyWhereAskedTo) {
  core::Json config = small("qwen2");
  config["sliding_window"] = 8;
  config["max_window_layers"] = 2;
  EXPECT_EQ(identify(config).architecture.layer(2).window, 0);
  config["use_sliding_window"] = true;
  EXPECT_EQ(identify(config).architecture.layer(1).window, 0);
  EXPECT_EQ(identify(config).architecture.layer(2).window, 8);
}

const core::Json gpt_oss_20b = {{"model_type", "gpt_oss"},
                                {"vocab_size", 201088},
                                {"hidden_size", 2880},
                                {"intermediate_size", 2880},
                                {"num_hidden_layers", 24},
                                {"num_attention_heads", 64},
                                {"num_key_value_heads", 8},
                                {"head_dim", 64},
                                {"max_position_embeddings", 131072},
                                {"rms_norm_eps", 1e-05},
                                {"attention_bias", true},
                                {"num_local_experts", 32},
                                {"num_experts_per_tok", 4},
                                {"sliding_window", 128},
                                {"swiglu_limit", 7.0},
                                {"rope_theta", 150000},
                                {"rope_scaling",
                                 {{"rope_type", "yarn"},
                                  {"factor", 32.0},
                                  {"beta_fast", 32.0},
                                  {"beta_slow", 1.0},
                                  {"original_max_position_embeddings", 4096},
                                  {"truncate", false}}}};

TEST(GptOssConfig, HasTheParametersThatItsMakersCount) {
  core::Json config = gpt_oss_20b;
  const auto count = [&] {
    const auto identified =
        model::identify(config.dump(), "config.json", modules::registry().families);
    return identified.family->describe(identified.architecture).num_parameters();
  };
  EXPECT_EQ(count(), 20914757184);
  config["num_hidden_layers"] = 36;
  config["num_local_experts"] = 128;
  EXPECT_EQ(count(), 116829156672);
}

TEST(GptOssConfig, AlternatesWindowsAndHasFilesInBfloat16UnlessTold) {
  const model::Architecture a =
      model::identify(gpt_oss_20b.dump(), "config.json", modules::registry().families).architecture;
  EXPECT_EQ(a.layer(0).window, 128);
  EXPECT_EQ(a.layer(1).window, 0);
  EXPECT_FALSE(a.rope_scaling.is_truncated);
  EXPECT_NEAR(a.rope_scaling.amplitude, 1.3465735902799727, 1e-15);  // 0.1 ln 32 + 1
  EXPECT_EQ(a.experts.activation.slope, 1.702);
  EXPECT_EQ(a.file_dtype, core::DType::bf16);
  core::Json told = gpt_oss_20b;
  told["dtype"] = "float32";
  EXPECT_EQ(model::identify(told.dump(), "config.json", modules::registry().families)
                .architecture.file_dtype,
            core::DType::f32);
}

TEST(GptOssConfig, StretchesPositionsWhereItIsSilent) {
  core::Json config = gpt_oss_20b;
  config.erase("rope_scaling");
  const auto positions = identify(config).architecture.positions();
  EXPECT_EQ(positions.theta, 150000);
  EXPECT_EQ(positions.scaling.kind, model::RopeScaling::Kind::yarn);
  EXPECT_EQ(positions.scaling.factor, 32);
  EXPECT_EQ(positions.scaling.original_max_positions, 4096);
  EXPECT_FALSE(positions.scaling.is_truncated);
  config["rope_parameters"] = {{"rope_theta", 150000}};
  EXPECT_EQ(identify(config).architecture.rope_scaling.kind, model::RopeScaling::Kind::none);
}

TEST(GptOssConfig, IsRefusedWithAnotherActivationAndMoreChoicesThanExperts) {
  const auto refusal_of = [](const core::Json& config) -> std::string {
    try {
      model::identify(config.dump(), "config.json", modules::registry().families);
      return "";
    } catch (const core::Error& error) {
      return error.what();
    }
  };
  core::Json config = gpt_oss_20b;
  config["hidden_act"] = "gelu";
  EXPECT_NE(refusal_of(config).find("hidden_act"), std::string::npos);
  config = gpt_oss_20b;
  config["num_experts_per_tok"] = 33;
  EXPECT_NE(refusal_of(config).find("num_experts_per_tok"), std::string::npos);
}

TEST(ModelsThatSee, AreTiedAsTheWholeSays) {
  for (const auto& [whole, part] :
       {std::pair("gemma3", "gemma3_text"), std::pair("gemma4", "gemma4_text"),
        std::pair("mistral3", "mistral"), std::pair("qwen3_vl", "qwen3_vl_text")}) {
    core::Json config = {{"model_type", whole}, {"text_config", small(part)}};
    if (std::string(whole) == "gemma4") config["text_config"]["hidden_size_per_layer_input"] = 0;
    config["text_config"].erase("tie_word_embeddings");
    const bool usual = identify(config).architecture.tied_embeddings;
    for (const bool is_tied : {true, false}) {
      config["tie_word_embeddings"] = is_tied;
      config["text_config"]["tie_word_embeddings"] = !is_tied;
      EXPECT_EQ(identify(config).architecture.tied_embeddings, is_tied) << whole;
      // Programs differ in what they make of the part alone.
      config.erase("tie_word_embeddings");
      if (std::string(whole) == "mistral3" || !is_tied == usual)
        EXPECT_EQ(identify(config).architecture.tied_embeddings, !is_tied) << whole;
      else
        EXPECT_THROW(identify(config), core::Error) << whole;
    }
  }
}

TEST(LayerTypes, AreRefusedWhereTheySayOtherwise) {
  core::Json config = small("qwen3");
  config["layer_types"] = {"full_attention", "full_attention", "full_attention"};
  EXPECT_NO_THROW(identify(config));
  config["layer_types"][1] = "sliding_attention";
  EXPECT_THROW(identify(config), core::Error);
  config["layer_types"] = {"full_attention"};
  EXPECT_THROW(identify(config), core::Error);
}

TEST(ConfigOfExperts, RefusesMoreChoicesThanExperts) {
  core::Json config = small("mixtral");
  config["num_local_experts"] = 2;
  config["num_experts_per_tok"] = 3;
  EXPECT_THROW(identify(config), core::Error);
}

TEST(ConfigOfExperts, BalancesThemOnlyWhereAskedTo) {
  core::Json config = small("mixtral");
  config["router_aux_loss_coef"] = 0.02;
  EXPECT_EQ(identify(config).architecture.experts.balance, 0);
  config["output_router_logits"] = true;
  EXPECT_EQ(identify(config).architecture.experts.balance, 0.02);
}

TEST(ConfigsOfOthers, RefuseMoreLayersThanATableHolds) {
  core::Json config = small("qwen3");
  config["num_hidden_layers"] = std::int64_t{1} << 40;
  EXPECT_THROW(identify(config), core::Error);
}

}  // namespace
}  // namespace finetune::configs_test
