// SPDX-License-Identifier: Apache-2.0
#include "model/quantization.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/text.hpp"
#include "model/packing.hpp"

namespace finetune::model {
namespace {

/// One object of settings, with its place for messages.
class Reader {
 public:
  Reader(const core::Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  [[noreturn]] void fail(const std::string& problem, const std::string& why,
                         const std::string& remedy) const {
    core::fail(core::ErrorKind::input, {where_, problem, why, remedy});
  }

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  std::int64_t integer(const char* key, std::int64_t otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_[key].is_number_integer())
      fail(fmt::format("\"{}\" is no integer", key), "it says how the weights are packed",
           "Use the file the model was published with.");
    return object_[key].get<std::int64_t>();
  }
  bool boolean(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_[key].is_boolean())
      fail(fmt::format("\"{}\" is neither true nor false", key),
           "it says how the weights are packed", "Use the file the model was published with.");
    return object_[key].get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_[key].is_string())
      fail(fmt::format("\"{}\" is no string", key), "it says how the weights are packed",
           "Use the file the model was published with.");
    return object_[key].get<std::string>();
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> all;
    if (!has(key) || !object_[key].is_array()) return all;
    for (const core::Json& entry : object_[key])
      if (entry.is_string()) all.push_back(entry.get<std::string>());
    return all;
  }

 private:
  const core::Json& object_;
  std::string where_;
};

Quantization read_gptq(const Reader& reader) {
  constexpr std::array<std::int64_t, 4> known_groups = {-1, 32, 64, 128};
  const std::int64_t bits = reader.integer("bits", 4);
  if (bits != 4)
    reader.fail(fmt::format("GPTQ with {} bits", bits), "only 4 bits are read",
                "Choose the Int4 model of the family.");
  const std::int64_t group = reader.integer("group_size", 128);
  if (std::find(known_groups.begin(), known_groups.end(), group) == known_groups.end())
    reader.fail(fmt::format("GPTQ with group_size {}", group), "-1, 32, 64 and 128 are read",
                "Choose another quantised model, or adapter.name = \"qlora\" on the original.");
  const std::string format = reader.text("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2")
    reader.fail(fmt::format("checkpoint_format \"{}\"", format),
                "\"gptq\" and \"gptq_v2\" are read",
                "Save the model in one of them, for example with GPTQModel.");
  Quantization result;
  result.packing = {.kind = Packing::Kind::gptq,
                    .in_files = true,
                    .group_size = group > 0 ? group : 0,
                    .zero_offset = format == "gptq" ? 1 : 0};
  return result;
}

Quantization read_bitsandbytes(const Reader& reader) {
  const std::string type = reader.text("bnb_4bit_quant_type", "fp4");
  if (!reader.boolean("load_in_4bit", false) || type != "nf4")
    reader.fail(reader.boolean("load_in_4bit", false)
                    ? fmt::format("bitsandbytes with bnb_4bit_quant_type \"{}\"", type)
                    : "bitsandbytes with 8 bits",
                "of bitsandbytes 4 bits of type nf4 are read",
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

bool is_left_out(const Parameter& row, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return row.name.starts_with(name + ".") || row.name.find("." + name + ".") != std::string::npos;
  });
}

}  // namespace

Quantization read_quantization(const core::Json& config, const std::string& where,
                               const core::Json& quantize_config,
                               const std::string& quantize_where) {
  const auto found = config.find("quantization_config");
  const bool is_inside = found != config.end() && found->is_object();
  if (!is_inside && !quantize_config.is_object()) return {};
  const Reader reader(is_inside ? *found : quantize_config,
                      is_inside ? where + ": quantization_config" : quantize_where);
  const std::string method = reader.text("quant_method", is_inside ? "" : "gptq");
  if (method == "gptq") return read_gptq(reader);
  if (method == "bitsandbytes") return read_bitsandbytes(reader);
  reader.fail(fmt::format("quant_method \"{}\"", method),
              "\"gptq\" (4 bits) and \"bitsandbytes\" (nf4) are read",
              "Choose such a model, or the original one with adapter.name = \"qlora\".");
}

void refuse_modelopt(const core::Json& config, const std::string& where) {
  const auto found = config.is_object() ? config.find("quantization") : config.end();
  const bool is_told = config.is_object() && found != config.end() && found->is_object();
  const Reader reader(is_told ? *found : config, where);
  if (!is_told)
    reader.fail("has no \"quantization\"", "it says how NVIDIA's ModelOpt quantised the weights",
                "Use the file the model was published with.");
  const std::string method = reader.text("quant_algo", "");
  if (method.empty()) return;
  reader.fail(
      fmt::format("the weights were quantised to {} by NVIDIA's ModelOpt", core::one_line(method)),
      "\"gptq\" (4 bits) and \"bitsandbytes\" (nf4) are read",
      "Choose such a model, or the original one with adapter.name = \"qlora\".");
}

void mark_packed(const Quantization& quantization, const std::string& where,
                 ParameterTable& table) {
  if (quantization.packing.is_dense()) return;
  for (Parameter& row : table.rows) {
    const bool is_matrix = row.role == Role::linear || row.role == Role::expert;
    if (!is_matrix || is_left_out(row, quantization.not_converted)) continue;
    if (quantization.packing.kind == Packing::Kind::gptq && row.shape.size() == 3)
      core::fail(core::ErrorKind::input,
                 {where, fmt::format("{} cannot be packed in 4 bits by GPTQ", row.name),
                  fmt::format("it holds the {} experts of a layer as one tensor, but GPTQ's files "
                              "hold only matrices",
                              row.shape[0]),
                  "Use the original model with adapter.name = \"qlora\"."});
    const std::string why = why_not_packed(row, quantization.packing);
    if (!why.empty())
      core::fail(core::ErrorKind::input,
                 {where, fmt::format("{} cannot be packed in 4 bits", row.name), why,
                  "Check that config.json belongs to the model."});
    row.packing = quantization.packing;
    row.trainable = false;
  }
}

}  // namespace finetune::model
