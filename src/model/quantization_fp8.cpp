// SPDX-License-Identifier: Apache-2.0
#include "model/detail/quantization_fp8.hpp"

#include <string_view>

#include "core/text.hpp"
#include "kernels/row_codes.hpp"
#include "model/fp8.hpp"

namespace finetune::model {
namespace {

constexpr const char* other_model =
    "Choose a model in FP8, or the original one with adapter.name = \"qlora\".";

/// `side`: of the blocks; 0: there are none.
Packing packing_of(std::int64_t side) {
  return {.kind = Packing::Kind::fp8, .in_files = true, .nests = false, .group_size = side};
}

/// 0 without blocks.
std::int64_t side_of_blocks(const SettingsReader& reader, const char* key) {
  if (!reader.has(key)) return 0;
  const core::Json& size = reader.json()[key];
  if (size != core::Json::array({fp8_block, fp8_block}))
    reader.fail(fmt::format("\"{}\" is {}", key, core::one_line(size.dump())),
                fmt::format("scales of {0} x {0} weights are read", fp8_block), other_model);
  return fp8_block;
}

/// Names as shells write them, with * for any part.
core::Regex pattern_of_wildcards(std::string_view name, const std::string& where) {
  std::string pattern = "\\A";
  for (const char c : name) {
    if (c == '*') {
      pattern += ".*";
      continue;
    }
    if (std::string_view("\\^$.|?+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return {pattern + "\\z", false, where};
}

}  // namespace

Quantization read_fp8(const SettingsReader& reader) {
  const std::string format = reader.text("fmt", "e4m3");
  if (format != "e4m3" && format != "float8_e4m3fn")
    reader.fail(fmt::format("FP8 of \"{}\"", core::one_line(format)), "e4m3 is read", other_model);
  Quantization result;
  result.packing = packing_of(side_of_blocks(reader, "weight_block_size"));
  for (const char* key : {"modules_to_not_convert", "ignored_layers"})
    for (std::string& name : reader.texts(key))
      result.not_converted.push_back(std::move(name));
  return result;
}

Packing read_compressed_fp8(const SettingsReader& weights) {
  if (weights.integer("num_bits", 0) != 8)
    weights.fail(fmt::format("num_bits {} with type \"float\"", weights.integer("num_bits", 0)),
                 "of floats those of 8 bits are read, and those of 4 bits in NVFP4", other_model);
  const std::string strategy = weights.text("strategy", "tensor");
  if (strategy != "tensor" && strategy != "channel" && strategy != "block")
    weights.fail(fmt::format("strategy \"{}\"", core::one_line(strategy)),
                 "\"tensor\", \"channel\" and \"block\" are read", other_model);
  const Packing packing =
      packing_of(strategy == "block" ? side_of_blocks(weights, "block_structure") : 0);
  if (strategy == "block" && packing.group_size == 0)
    weights.fail("has no \"block_structure\"", "it is the size of the blocks", other_model);
  return packing;
}

Quantization read_modelopt(const SettingsReader& reader, const char* excluded) {
  const std::string algorithm = reader.text("quant_algo", "");
  if (algorithm.empty()) return {};
  const bool is_nvfp4 = algorithm == "NVFP4" || algorithm == "W4A16_NVFP4";
  if (algorithm != "FP8" && !is_nvfp4)
    reader.fail(fmt::format("the weights were quantised to {} by NVIDIA's ModelOpt",
                            core::one_line(algorithm)),
                "of ModelOpt's models those in FP8 and NVFP4 are read", other_model);
  Quantization result;
  result.packing = packing_of(0);
  if (is_nvfp4) {
    const std::int64_t group = reader.integer("group_size", kernels::nvfp4_block);
    if (group != kernels::nvfp4_block)
      reader.fail(fmt::format("group_size {}", group),
                  fmt::format("NVFP4 has {}", kernels::nvfp4_block), other_model);
    result.packing = {.kind = Packing::Kind::nvfp4,
                      .in_files = true,
                      .nests = false,
                      .writer = Packing::Writer::modelopt};
  }
  for (const std::string& name : reader.texts(excluded))
    result.not_converted_patterns.push_back(
        pattern_of_wildcards(name, fmt::format("{}: {}", reader.where(), excluded)));
  return result;
}

}  // namespace finetune::model
