// SPDX-License-Identifier: Apache-2.0
// What is read of Gemma 4's configurations: inputs of layers, shared keys, experts beside a dense
// part.

#include "model/part.hpp"
#include "modules/families/configs.hpp"

namespace finetune::gemma4_test {
namespace {

using tests::configs::identify;
using tests::configs::published;
using tests::configs::table_of;

/// But constants, which transformers does not count either.
std::int64_t num_parameters(const model::ParameterTable& table) {
  std::int64_t sum = 0;
  for (const model::Parameter& row : table.rows)
    sum += row.is_constant ? 0 : row.count();
  return sum;
}

/// The settings of a text, changed.
core::Json changed(const std::string& name, const core::Json& changes) {
  core::Json config = published(name);
  config["text_config"].update(changes);
  return config;
}

std::string refusal(const core::Json& config) {
  try {
    identify(config);
    return "";
  } catch (const core::Error& error) {
    return error.what();
  }
}

TEST(Gemma4Config, HasTheParametersThatTransformersCounts) {
  EXPECT_EQ(num_parameters(table_of(published("gemma-4-E2B"))), 4628569344);
  EXPECT_EQ(num_parameters(table_of(published("gemma-4-E4B"))), 7463013376);
  EXPECT_EQ(num_parameters(table_of(published("gemma-4-26B-A4B"))), 25233141760);
}

TEST(Gemma4Config, TheLastLayersReadTheKeysOfTheLastOneOfTheirKind) {
  const model::Architecture a = identify(published("gemma-4-E2B")).architecture;
  EXPECT_EQ(a.layer(14).keys_of, -1);
  EXPECT_EQ(a.layer(15).keys_of, 13);
  EXPECT_EQ(a.layer(19).keys_of, 14);
  EXPECT_EQ(a.layer(34).keys_of, 14);
  EXPECT_EQ(a.d_ff_of(a.layer(14)), 6144);
  EXPECT_EQ(a.d_ff_of(a.layer(15)), 12288);
}

TEST(Gemma4Config, PublishedMatricesThatNobodyReadsAreLeftOut) {
  const model::ParameterTable table = table_of(published("gemma-4-E2B"));
  const std::string unread = "model.language_model.layers.15.self_attn.k_proj.weight";
  EXPECT_TRUE(std::ranges::any_of(
      table.foreign, [&](const std::string& prefix) { return unread.starts_with(prefix); }));
  EXPECT_FALSE(std::ranges::any_of(
      table.rows, [&](const model::Parameter& row) { return row.name == unread; }));
  tests::configs::expect_tensors(
      published("gemma-4-E2B"),
      {{"model.language_model.embed_tokens_per_layer.weight", {262144, 8960}},
       {"model.language_model.per_layer_model_projection.weight", {8960, 1536}},
       {"model.language_model.per_layer_projection_norm.weight", {256}},
       {"model.language_model.layers.15.self_attn.q_proj.weight", {2048, 1536}},
       {"model.language_model.layers.34.mlp.up_proj.weight", {12288, 1536}},
       {"model.language_model.layers.34.per_layer_input_gate.weight", {256, 1536}}});
}

TEST(Gemma4Config, WhatItWouldComputeWronglyIsRefusedByItsKey) {
  EXPECT_NE(refusal(changed("gemma-4-E2B", {{"vocab_size_per_layer_input", 1000}}))
                .find("vocab_size_per_layer_input"),
            std::string::npos);
  EXPECT_NE(
      refusal(changed("gemma-4-E2B", {{"num_kv_shared_layers", 33}})).find("num_kv_shared_layers"),
      std::string::npos);
  EXPECT_NE(refusal(changed("gemma-4-26B-A4B", {{"top_k_experts", 200}})).find("top_k_experts"),
            std::string::npos);
}

TEST(Gemma4Config, WhatBlocksHandOnIsNotSharedOut) {
  EXPECT_NE(model::why_not(table_of(published("gemma-4-E2B")), 2).find("hand on"),
            std::string::npos);
  EXPECT_EQ(model::why_not(table_of(published("gemma-4-26B-A4B")), 2), "");
}

}  // namespace
}  // namespace finetune::gemma4_test
