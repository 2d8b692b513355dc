// SPDX-License-Identifier: Apache-2.0
// What published models say of their weights in FP8.

#include "model/quantization.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "core/error.hpp"
#include "model/layout.hpp"

namespace finetune::model::quantization_test {
namespace {

using core::Json;

Quantization read(const Json& config) {
  return read_quantization({{"quantization_config", config}}, "config.json", {}, "");
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::input);
    return error.what();
  }
  return "";
}

void expect_refused(const Json& config, const std::string& text) {
  const std::string message = refusal([&] { (void)read(config); });
  EXPECT_NE(message.find(text), std::string::npos) << message;
}

ParameterTable table() {
  Architecture a;
  a.num_layers = 2;
  a.vocab_size = 13;
  a.d_model = 48;
  a.num_heads = a.num_kv_heads = 4;
  a.head_size = 12;
  a.d_ff = 80;
  return lay_out(a);
}

int num_packed(const Quantization& quantization) {
  ParameterTable all = table();
  mark_packed(quantization, "config.json", all);
  int num = 0;
  for (const Parameter& row : all.rows) {
    if (row.packing.is_dense()) continue;
    EXPECT_EQ(row.role, Role::linear) << row.name;
    EXPECT_FALSE(row.trainable) << row.name;
    ++num;
  }
  return num;
}

Json compressed(const Json& weights, const Json& ignore = {"lm_head"}) {
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"ignore", ignore},
          {"config_groups",
           {{"group_0", {{"targets", Json::array({"Linear"})}, {"weights", weights}}}}}};
}

const Json by_channel = {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}};

TEST(QuantizationInFp8, IsReadAsDeepSeekWritesIt) {
  const Quantization q = read({{"quant_method", "fp8"},
                               {"fmt", "e4m3"},
                               {"activation_scheme", "dynamic"},
                               {"weight_block_size", {128, 128}}});
  EXPECT_EQ(q.packing.kind, Packing::Kind::fp8);
  EXPECT_TRUE(q.packing.in_files);
  EXPECT_FALSE(q.packing.is_operand());
  EXPECT_EQ(q.packing.group_size, 128);
  EXPECT_EQ(num_packed(q), 14) << "of any size";
}

TEST(QuantizationInFp8, HasOneScaleWithoutSizesOfBlocks) {
  const Quantization q = read({{"quant_method", "fp8"},
                               {"activation_scheme", "static"},
                               {"weight_block_size", nullptr},
                               {"modules_to_not_convert", {"model.layers.0.mlp", "lm_head"}}});
  EXPECT_EQ(q.packing.group_size, 0);
  EXPECT_EQ(num_packed(q), 11);
}

TEST(QuantizationInFp8, IsReadAsCompressedTensorsWritesIt) {
  EXPECT_EQ(read(compressed(by_channel)).packing.group_size, 0);
  const Quantization blocks = read(compressed({{"num_bits", 8},
                                               {"type", "float"},
                                               {"strategy", "block"},
                                               {"block_structure", {128, 128}}}));
  EXPECT_EQ(blocks.packing.group_size, 128);
  EXPECT_EQ(num_packed(blocks), 14);
  EXPECT_EQ(num_packed(read(compressed(
                by_channel, {"re:.*down_proj$", "model.layers.1.self_attn.q_proj", "lm_head"}))),
            11);
  EXPECT_EQ(num_packed(read(compressed(by_channel, {"re:layers"}))), 14) << "from the beginning";
}

TEST(QuantizationInFp8, IsReadAsModelOptWritesIt) {
  const Json of_file = {{"producer", {{"name", "modelopt"}}},
                        {"quantization",
                         {{"quant_algo", "FP8"},
                          {"kv_cache_quant_algo", "FP8"},
                          {"exclude_modules", {"lm_head", "model.layers.*.mlp.*_proj"}}}}};
  const Quantization q = read_modelopt(of_file, "hf_quant_config.json");
  EXPECT_EQ(q.packing.kind, Packing::Kind::fp8);
  EXPECT_EQ(num_packed(q), 8);
  EXPECT_EQ(num_packed(read({{"quant_method", "modelopt"},
                             {"quant_algo", "FP8"},
                             {"ignore", {"model.layers.0.self_attn.q_proj"}}})),
            13);
  EXPECT_TRUE(
      read_modelopt({{"quantization", {{"kv_cache_quant_algo", "FP8"}}}}, "x").packing.is_dense());
  const std::string message = refusal([&] {
    (void)read_modelopt({{"quantization", {{"quant_algo", "NVFP4"}}}}, "hf_quant_config.json");
  });
  EXPECT_NE(message.find("quantised to NVFP4 by NVIDIA's ModelOpt"), std::string::npos) << message;
}

/// As OpenAI writes it.
TEST(QuantizationInMxfp4, IsOfExpertsInOneTensorAlone) {
  const Quantization q =
      read({{"quant_method", "mxfp4"},
            {"modules_to_not_convert", {"model.layers.*.self_attn", "model.layers.1.mlp"}}});
  EXPECT_EQ(q.packing.kind, Packing::Kind::mxfp4);
  EXPECT_TRUE(q.packing.in_files);
  Architecture a;
  a.num_layers = 2;
  a.vocab_size = 13;
  a.d_model = 64;
  a.num_heads = a.num_kv_heads = 4;
  a.head_size = 16;
  a.layers.resize(2, {.has_experts = true});
  a.experts = {.num = 3, .top_k = 1, .d_ff = 96, .has_biases = true};
  TensorNames names;
  names.fused_gate_up = "mlp.experts.gate_up_proj";
  names.fused_down = "mlp.experts.down_proj";
  ParameterTable all = lay_out(a, names);
  mark_packed(q, "config.json", all);
  std::vector<std::string> packed;
  for (const Parameter& row : all.rows) {
    EXPECT_NE(row.trainable, row.packing.kind == Packing::Kind::mxfp4) << row.name;
    if (!row.packing.is_dense()) packed.push_back(row.name);
  }
  EXPECT_EQ(packed, (std::vector<std::string>{"model.layers.0.mlp.experts.gate_up_proj",
                                              "model.layers.0.mlp.experts.down_proj"}));
  // Experts that are tensors of their own have no such files.
  ParameterTable separate = lay_out(a);
  EXPECT_NE(refusal([&] {
              mark_packed(q, "config.json", separate);
            }).find("it is no tensor of all experts of a layer"),
            std::string::npos);
}

TEST(QuantizationInFp8, OfOtherKindsIsRefusedByName) {
  expect_refused({{"quant_method", "fp8"}, {"weight_block_size", {64, 128}}},
                 "\"weight_block_size\" is [64,128] (scales of 128 x 128 weights are read)");
  expect_refused({{"quant_method", "fp8"}, {"fmt", "e5m2"}}, "FP8 of \"e5m2\" (e4m3 is read)");
  Json config = compressed(by_channel);
  config["format"] = "nvfp4-pack-quantized";
  expect_refused(config, "format \"nvfp4-pack-quantized\"");
  config = compressed({{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}});
  expect_refused(config, "the weights are not in FP8 (num_bits is 8, type is \"int\")");
  expect_refused(compressed({{"num_bits", 8}, {"type", "float"}, {"strategy", "group"}}),
                 "strategy \"group\"");
  expect_refused(compressed({{"num_bits", 8}, {"type", "float"}, {"strategy", "block"}}),
                 "has no \"block_structure\"");
  config = compressed(by_channel);
  config["config_groups"]["group_1"] = config["config_groups"]["group_0"];
  expect_refused(config, "\"config_groups\" has 2 groups");
  config = compressed(by_channel);
  config["config_groups"]["group_0"]["targets"] = {"re:.*mlp.*"};
  expect_refused(config, "\"targets\" is not [\"Linear\"]");
  config = compressed(by_channel);
  config["sparsity_config"] = {{"format", "sparse-24-bitmask"}};
  expect_refused(config, "has a \"sparsity_config\"");
  expect_refused(compressed(by_channel, {"re:(unclosed"}), "is no regular expression");
}

}  // namespace
}  // namespace finetune::model::quantization_test
