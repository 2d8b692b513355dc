// SPDX-License-Identifier: Apache-2.0
#include "model/quantization.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "core/error.hpp"
#include "core/text.hpp"
#include "model/detail/quantization_compressed.hpp"
#include "model/detail/quantization_fp8.hpp"
#include "model/detail/settings_reader.hpp"
#include "model/packing.hpp"

namespace finetune::model {
namespace {

constexpr const char* another_model =
    "Choose another quantised model, or adapter.name = \"qlora\" on the original.";

/// Inputs that share a scale; 0: all.
std::int64_t read_group_size(const SettingsReader& reader, const char* key, const char* method) {
  constexpr std::array<std::int64_t, 4> known_groups = {-1, 32, 64, 128};
  const std::int64_t group = reader.integer(key, 128);
  if (std::find(known_groups.begin(), known_groups.end(), group) == known_groups.end())
    reader.fail(fmt::format("{} with {} {}", method, key, group), "-1, 32, 64 and 128 are read",
                another_model);
  return std::max<std::int64_t>(0, group);
}

Quantization read_gptq(const SettingsReader& reader) {
  const std::int64_t bits = reader.integer("bits", 4);
  if (bits != 4 && bits != 8)
    reader.fail(fmt::format("GPTQ with {} bits", bits), "4 and 8 bits are read",
                "Choose the Int4 or the Int8 model of the family.");
  const std::int64_t group = read_group_size(reader, "group_size", "GPTQ");
  const std::string format = reader.text("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2")
    reader.fail(fmt::format("checkpoint_format \"{}\"", format),
                "\"gptq\" and \"gptq_v2\" are read",
                "Save the model in one of them, for example with GPTQModel.");
  Quantization result;
  result.packing = {.kind = Packing::Kind::gptq,
                    .in_files = true,
                    .group_size = group,
                    .zero_offset = format == "gptq" ? 1 : 0,
                    .bits = static_cast<int>(bits)};
  return result;
}

/// AutoAWQ's own file had other names for two of the keys.
Quantization read_awq(const SettingsReader& reader) {
  const char* bits_key = reader.has("w_bit") ? "w_bit" : "bits";
  if (const std::int64_t bits = reader.integer(bits_key, 4); bits != 4)
    reader.fail(fmt::format("AWQ with {} {}", bits_key, bits), "4 bits are read", another_model);
  const char* version_key = reader.has("version") ? "version" : "format";
  std::string version = reader.text(version_key, "gemm");
  std::ranges::transform(version, version.begin(), [](unsigned char c) { return std::tolower(c); });
  if (version != "gemm")
    reader.fail(fmt::format("AWQ with {} \"{}\"", version_key, core::one_line(version)),
                "\"gemm\" is read; others have their words in another order", another_model);
  if (!reader.boolean("zero_point", true))
    reader.fail("AWQ with zero_point false", "weights with zero points are read", another_model);
  Quantization result;
  result.packing = {.kind = Packing::Kind::gptq,
                    .in_files = true,
                    .group_size = read_group_size(
                        reader, reader.has("q_group_size") ? "q_group_size" : "group_size", "AWQ"),
                    .zero_offset = 0,
                    .writer = Packing::Writer::awq};
  result.not_converted = reader.texts("modules_to_not_convert");
  return result;
}

/// Outliers of activations, which its products treat apart, are no matter of the weights.
Quantization read_bitsandbytes_int8(const SettingsReader& reader) {
  if (!reader.boolean("load_in_8bit", false))
    reader.fail("neither load_in_4bit nor load_in_8bit is true",
                "one of them says how bitsandbytes packed the weights", another_model);
  if (reader.boolean("llm_int8_has_fp16_weight", false))
    reader.fail("llm_int8_has_fp16_weight is true", "weights in 8 bits are read",
                "Save the model without it.");
  Quantization result;
  result.packing = {.kind = Packing::Kind::integers,
                    .in_files = true,
                    .nests = false,
                    .bits = 8,
                    .writer = Packing::Writer::bitsandbytes};
  result.not_converted = reader.texts("llm_int8_skip_modules");
  return result;
}

Quantization read_bitsandbytes(const SettingsReader& reader) {
  if (!reader.boolean("load_in_4bit", false)) return read_bitsandbytes_int8(reader);
  if (const std::string type = reader.text("bnb_4bit_quant_type", "fp4"); type != "nf4")
    reader.fail(fmt::format("bitsandbytes with bnb_4bit_quant_type \"{}\"", core::one_line(type)),
                "of 4 bits the type nf4 is read",
                "Use the original model with adapter.name = \"qlora\".");
  if (reader.text("bnb_4bit_quant_storage", "uint8") != "uint8")
    reader.fail("bnb_4bit_quant_storage is not \"uint8\"", "only bytes are read",
                "Use the original model with adapter.name = \"qlora\".");
  Quantization result;
  result.packing = {.kind = Packing::Kind::nf4,
                    .in_files = true,
                    .nests = reader.boolean("bnb_4bit_use_double_quant", false)};
  result.not_converted = reader.texts("llm_int8_skip_modules");
  return result;
}

/// Of all experts of a layer; other modules are named, and are as they were in any case.
Quantization read_mxfp4(const SettingsReader& reader) {
  Quantization result;
  result.packing = {.kind = Packing::Kind::mxfp4, .in_files = true, .nests = false};
  for (const std::string& name : reader.texts("modules_to_not_convert"))
    result.not_converted_patterns.emplace_back(name, false,
                                               reader.where() + ": modules_to_not_convert");
  return result;
}

bool is_left_out(const Parameter& row, const Quantization& quantization) {
  const std::string_view module = std::string_view(row.name).substr(0, row.name.rfind('.'));
  return std::ranges::any_of(quantization.not_converted,
                             [&](const std::string& name) {
                               return row.name.starts_with(name + ".") ||
                                      row.name.find("." + name + ".") != std::string::npos;
                             }) ||
         std::ranges::any_of(quantization.not_converted_patterns, [&](const core::Regex& pattern) {
           return pattern.matches_beginning(module);
         });
}

const char* bits_of(const Packing& packing) {
  return packing.kind == Packing::Kind::fp8 || packing.bits == 8 ? "8 bits" : "4 bits";
}

}  // namespace

Quantization read_quantization(const core::Json& config, const std::string& where,
                               const core::Json& quantize_config,
                               const std::string& quantize_where) {
  const auto found = config.find("quantization_config");
  const bool is_inside = found != config.end() && found->is_object();
  if (!is_inside && !quantize_config.is_object()) return {};
  const SettingsReader reader(is_inside ? *found : quantize_config,
                              is_inside ? where + ": quantization_config" : quantize_where);
  const std::string method = reader.text("quant_method", is_inside ? "" : "gptq");
  if (method == "gptq") return read_gptq(reader);
  if (method == "awq") return read_awq(reader);
  if (method == "bitsandbytes") return read_bitsandbytes(reader);
  if (method == "fp8") return read_fp8(reader);
  if (method == "mxfp4") return read_mxfp4(reader);
  if (method == "compressed-tensors") return read_compressed_tensors(reader);
  if (method == "modelopt") return read_modelopt(reader, "ignore");
  reader.fail(fmt::format("quant_method \"{}\"", core::one_line(method)),
              "\"gptq\", \"awq\", \"bitsandbytes\", \"compressed-tensors\", \"mxfp4\", \"fp8\" "
              "and \"modelopt\" (FP8, NVFP4) are read",
              "Choose such a model, or the original one with adapter.name = \"qlora\".");
}

Quantization read_modelopt(const core::Json& config, const std::string& where) {
  const auto found = config.is_object() ? config.find("quantization") : config.end();
  const bool is_told = config.is_object() && found != config.end() && found->is_object();
  const SettingsReader reader(is_told ? *found : config, where);
  if (!is_told)
    reader.fail("has no \"quantization\"", "it says how NVIDIA's ModelOpt quantised the weights",
                "Use the file the model was published with.");
  return read_modelopt(reader, "exclude_modules");
}

void mark_packed(const Quantization& quantization, const std::string& where,
                 ParameterTable& table) {
  if (quantization.packing.is_dense()) return;
  const bool is_gptq = quantization.packing.kind == Packing::Kind::gptq &&
                       quantization.packing.writer != Packing::Writer::awq;
  const bool is_mxfp4 = quantization.packing.kind == Packing::Kind::mxfp4;
  for (Parameter& row : table.rows) {
    const bool is_matrix = row.role == Role::linear || row.role == Role::expert;
    if (!is_matrix || is_left_out(row, quantization)) continue;
    if (is_mxfp4 && row.role != Role::expert) continue;
    if (!is_mxfp4 && quantization.packing.kind != Packing::Kind::nf4 && row.shape.size() == 3)
      core::fail(core::ErrorKind::input,
                 {where,
                  fmt::format("{} cannot be packed in {} by {}", row.name,
                              bits_of(quantization.packing), is_gptq ? "GPTQ" : "scales"),
                  fmt::format("it holds the {} experts of a layer as one tensor, but {} files "
                              "hold only matrices",
                              row.shape[0], is_gptq ? "GPTQ's" : "such"),
                  "Use the original model with adapter.name = \"qlora\"."});
    const std::string why = why_not_packed(row, quantization.packing);
    if (!why.empty())
      core::fail(
          core::ErrorKind::input,
          {where, fmt::format("{} cannot be packed in {}", row.name, bits_of(quantization.packing)),
           why, "Check that config.json belongs to the model."});
    row.packing = quantization.packing;
    row.trainable = false;
  }
}

}  // namespace finetune::model
