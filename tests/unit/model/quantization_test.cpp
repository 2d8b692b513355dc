// SPDX-License-Identifier: Apache-2.0
// What published models say of their weights in few bits.

#include "model/quantization.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "core/error.hpp"
#include "model/layout.hpp"
#include "support/architecture.hpp"

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
  return lay_out(tests::architecture_of({2, 48, 4, 4, 12, 80, 13}));
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
    (void)read_modelopt({{"quantization", {{"quant_algo", "W4A16_AWQ"}}}}, "hf_quant_config.json");
  });
  EXPECT_NE(message.find("quantised to W4A16_AWQ by NVIDIA's ModelOpt"), std::string::npos)
      << message;
  const Json in_4_bits = {{"quantization", {{"quant_algo", "NVFP4"}, {"group_size", 16}}}};
  EXPECT_EQ(read_modelopt(in_4_bits, "x").packing.kind, Packing::Kind::nvfp4);
  EXPECT_EQ(read_modelopt(in_4_bits, "x").packing.writer, Packing::Writer::modelopt);
}

/// As OpenAI writes it.
TEST(QuantizationInMxfp4, IsOfExpertsInOneTensorAlone) {
  const Quantization q =
      read({{"quant_method", "mxfp4"},
            {"modules_to_not_convert", {"model.layers.*.self_attn", "model.layers.1.mlp"}}});
  EXPECT_EQ(q.packing.kind, Packing::Kind::mxfp4);
  EXPECT_TRUE(q.packing.in_files);
  Architecture a = tests::architecture_of({2, 64, 4, 4, 16, /*d_ff=*/0, 13}, tests::expert_layer);
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
  expect_refused(config, "num_bits 8 (NVFP4 has 4)");
  config["format"] = "marlin-24";
  expect_refused(config, "format \"marlin-24\" (\"float-quantized\" (FP8), ");
  expect_refused(compressed({{"num_bits", 4}, {"type", "float"}, {"strategy", "channel"}}),
                 "num_bits 4 with type \"float\"");
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

const Json awq = {{"quant_method", "awq"}, {"bits", 4},
                  {"group_size", 128},     {"version", "gemm"},
                  {"zero_point", true},    {"modules_to_not_convert", nullptr}};

Json with(Json config, const std::string& key, const Json& value) {
  config[key] = value;
  return config;
}

TEST(QuantizationByAwq, IsThatOfGptqInAnotherOrder) {
  const Quantization q = read(awq);
  EXPECT_EQ(q.packing.kind, Packing::Kind::gptq);
  EXPECT_EQ(q.packing.writer, Packing::Writer::awq);
  EXPECT_EQ(q.packing.group_size, 128);
  EXPECT_EQ(q.packing.zero_offset, 0);
  EXPECT_EQ(q.packing.bits, 4);
  EXPECT_EQ(num_packed(q), 14);
  EXPECT_EQ(num_packed(read(with(awq, "modules_to_not_convert", {"k_proj"}))), 12);
  // As AutoAWQ's own file had it.
  const Quantization old = read({{"quant_method", "awq"},
                                 {"w_bit", 4},
                                 {"q_group_size", 64},
                                 {"version", "GEMM"},
                                 {"zero_point", true}});
  EXPECT_EQ(old.packing.group_size, 64);
}

TEST(QuantizationByAwq, OfOtherKindsIsRefusedByKey) {
  expect_refused(with(awq, "bits", 8), "AWQ with bits 8 (4 bits are read)");
  expect_refused(with(awq, "version", "gemv"), "AWQ with version \"gemv\" (\"gemm\" is read");
  expect_refused(with(awq, "zero_point", false), "AWQ with zero_point false");
  expect_refused(with(awq, "group_size", 16), "AWQ with group_size 16 (-1, 32, 64 and 128 are");
}

TEST(QuantizationByGptq, HasFourOrEightBits) {
  const Json gptq = {{"quant_method", "gptq"}, {"bits", 8}, {"group_size", -1}};
  const Quantization q = read(gptq);
  EXPECT_EQ(q.packing.bits, 8);
  EXPECT_EQ(q.packing.zero_offset, 1);
  EXPECT_EQ(q.packing.writer, Packing::Writer::any);
  EXPECT_EQ(num_packed(q), 14) << "words of four codes";
  expect_refused(with(gptq, "bits", 3), "GPTQ with 3 bits (4 and 8 bits are read)");
}

const Json by_group = {{"num_bits", 4},
                       {"type", "int"},
                       {"strategy", "group"},
                       {"group_size", 16},
                       {"symmetric", false}};

Json as(const std::string& format, const Json& weights) {
  return with(compressed(weights), "format", format);
}

TEST(QuantizationToIntegers, IsReadAsCompressedTensorsWritesIt) {
  const Quantization words = read(as("pack-quantized", by_group));
  EXPECT_EQ(words.packing.kind, Packing::Kind::integers);
  EXPECT_EQ(words.packing.writer, Packing::Writer::compressed_words);
  EXPECT_EQ(words.packing.bits, 4);
  EXPECT_EQ(words.packing.group_size, 16);
  EXPECT_TRUE(words.packing.has_zeros);
  EXPECT_EQ(num_packed(words), 14);
  const Quantization bytes =
      read(as("int-quantized", {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}}));
  EXPECT_EQ(bytes.packing.writer, Packing::Writer::compressed_bytes);
  EXPECT_EQ(bytes.packing.bits, 8);
  EXPECT_EQ(bytes.packing.group_size, 0);
  EXPECT_FALSE(bytes.packing.has_zeros);
  EXPECT_EQ(read(as("int-quantized", by_group)).packing.bits, 8) << "a byte each";
  // The format of the group counts more.
  Json mixed = as("mixed-precision", by_group);
  mixed["config_groups"]["group_0"]["format"] = "pack-quantized";
  EXPECT_EQ(read(mixed).packing.bits, 4);
  EXPECT_EQ(num_packed(read(as("pack-quantized", with(by_group, "actorder", "weight")))), 14);
}

TEST(QuantizationToIntegers, OfOtherKindsIsRefusedByKey) {
  const auto refused = [](const std::string& key, const Json& value, const std::string& text) {
    expect_refused(as("pack-quantized", with(by_group, key, value)), text);
  };
  refused("num_bits", 3, "config_groups: group_0: weights: num_bits 3 (4 and 8 are read)");
  refused("actorder", "group", "weights: actorder \"group\"");
  refused("strategy", "block", "strategy \"block\" (of integers \"tensor\", \"channel\" and");
  refused("group_size", 12, "group_size 12 (multiples of 8 are read)");
  refused("type", "uint", "type \"uint\" (\"int\" and \"float\" are read)");
  expect_refused(as("marlin-24", by_group), "type \"int\" with format \"marlin-24\"");
  const Quantization wide = read(as("pack-quantized", with(by_group, "group_size", 32)));
  EXPECT_NE(refusal([&] {
              (void)num_packed(wide);
            }).find("its 48 inputs are no multiple of 32 that share a scale"),
            std::string::npos);
}

TEST(QuantizationToIntegers, IsReadAsBitsandbytesWritesIt) {
  const Json config = {{"quant_method", "bitsandbytes"},
                       {"load_in_8bit", true},
                       {"llm_int8_threshold", 6.0},
                       {"llm_int8_skip_modules", {"lm_head", "v_proj"}}};
  const Quantization q = read(config);
  EXPECT_EQ(q.packing.kind, Packing::Kind::integers);
  EXPECT_EQ(q.packing.writer, Packing::Writer::bitsandbytes);
  EXPECT_EQ(q.packing.bits, 8);
  EXPECT_EQ(num_packed(q), 12);
  expect_refused(with(config, "llm_int8_has_fp16_weight", true),
                 "llm_int8_has_fp16_weight is true");
  expect_refused(with(config, "load_in_8bit", false), "neither load_in_4bit nor load_in_8bit");
  expect_refused({{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}},
                 "bnb_4bit_quant_type \"fp4\"");
}

TEST(QuantizationInNvfp4, HasGroupsOfSixteen) {
  const Json nvfp4 = {{"num_bits", 4},
                      {"type", "float"},
                      {"strategy", "tensor_group"},
                      {"group_size", 16},
                      {"symmetric", true}};
  const Quantization q = read(as("nvfp4-pack-quantized", nvfp4));
  EXPECT_EQ(q.packing.kind, Packing::Kind::nvfp4);
  EXPECT_EQ(num_packed(q), 14);
  expect_refused(as("nvfp4-pack-quantized", with(nvfp4, "group_size", 32)), "group_size 32");
  expect_refused(as("nvfp4-pack-quantized", with(nvfp4, "symmetric", false)), "symmetric false");
}

}  // namespace
}  // namespace finetune::model::quantization_test
