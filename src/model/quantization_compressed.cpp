// SPDX-License-Identifier: Apache-2.0
#include "model/detail/quantization_compressed.hpp"

#include <string_view>

#include "core/text.hpp"
#include "kernels/row_codes.hpp"
#include "model/detail/quantization_fp8.hpp"

namespace finetune::model {
namespace {

constexpr const char* other_weights =
    "Choose another quantised model, or the original one with adapter.name = \"qlora\".";

/// The one group of a model that has the same form in all of its layers.
SettingsReader only_group(const SettingsReader& reader) {
  const SettingsReader groups = reader.object("config_groups");
  if (groups.json().size() != 1)
    reader.fail(fmt::format("\"config_groups\" has {} groups", groups.json().size()),
                "one group, of all linear layers, is read", other_weights);
  const std::string name = groups.json().begin().key();
  SettingsReader group = groups.object(name.c_str());
  if (group.texts("targets") != std::vector<std::string>{"Linear"})
    group.fail("\"targets\" is not [\"Linear\"]", "one group, of all linear layers, is read",
               other_weights);
  return group;
}

void require_plain(const SettingsReader& reader) {
  for (const char* key : {"transform_config", "sparsity_config"}) {
    const SettingsReader other = reader.object(key);
    if (!other.json().empty() && other.text("format", "") != "dense")
      reader.fail(fmt::format("has a \"{}\"", key), "weights are read as they are", other_weights);
  }
}

[[noreturn]] void refuse_value(const SettingsReader& reader, const char* key,
                               const std::string& value, const std::string& read) {
  reader.fail(fmt::format("{} {}", key, core::one_line(value)), read, other_weights);
}

std::string quoted(const std::string& text) {
  return fmt::format("\"{}\"", text);
}

/// Inputs that share a scale; 0: all.
std::int64_t read_integer_groups(const SettingsReader& weights) {
  const std::string strategy = weights.text("strategy", "tensor");
  if (strategy == "tensor" || strategy == "channel") return 0;
  if (strategy != "group")
    refuse_value(weights, "strategy", quoted(strategy),
                 "of integers \"tensor\", \"channel\" and \"group\" are read");
  const std::int64_t group = weights.integer("group_size", 0);
  constexpr std::int64_t least = 8, most = 1 << 20;
  if (group < least || group > most || group % least != 0)
    refuse_value(weights, "group_size", fmt::format("{}", group), "multiples of 8 are read");
  return group;
}

/// Inputs in the order of their groups: what calibration did with another order is not seen.
void require_order(const SettingsReader& weights) {
  if (!weights.has("actorder")) return;
  const core::Json& order = weights.json()["actorder"];
  if (order != "weight" && order != "static" && order != false)
    refuse_value(weights, "actorder", order.dump(),
                 "groups of inputs in order are read, with \"weight\" or \"static\"");
}

Packing read_integers(const SettingsReader& weights, const std::string& format) {
  const bool are_words = format == "pack-quantized";
  if (!are_words && format != "int-quantized" && format != "naive-quantized")
    refuse_value(weights, "type \"int\" with format", quoted(format),
                 "\"pack-quantized\" and \"int-quantized\" are read");
  const std::int64_t bits = weights.integer("num_bits", 0);
  if (bits != 4 && bits != 8)
    refuse_value(weights, "num_bits", fmt::format("{}", bits), "4 and 8 are read");
  require_order(weights);
  return {
      .kind = Packing::Kind::integers,
      .in_files = true,
      .nests = false,
      .group_size = read_integer_groups(weights),
      .bits = are_words ? static_cast<int>(bits) : 8,  // bytes hold 4 bits as well
      .has_zeros = !weights.boolean("symmetric", true),
      .writer = are_words ? Packing::Writer::compressed_words : Packing::Writer::compressed_bytes};
}

Packing read_nvfp4(const SettingsReader& weights) {
  if (const std::int64_t bits = weights.integer("num_bits", 0); bits != 4)
    refuse_value(weights, "num_bits", fmt::format("{}", bits), "NVFP4 has 4");
  if (const std::string type = weights.text("type", ""); type != "float")
    refuse_value(weights, "type", quoted(type), "NVFP4 has floats");
  const std::int64_t group = weights.integer("group_size", 0);
  if (group != kernels::nvfp4_block)
    refuse_value(weights, "group_size", fmt::format("{}", group),
                 fmt::format("NVFP4 has {}", kernels::nvfp4_block));
  if (!weights.boolean("symmetric", true))
    refuse_value(weights, "symmetric", "false", "NVFP4 has no zero points");
  return {.kind = Packing::Kind::nvfp4, .in_files = true, .nests = false};
}

/// What the group's weights are in. The format of a group counts more than that of the whole.
Packing read_weights(const SettingsReader& reader) {
  const SettingsReader group = only_group(reader);
  const SettingsReader& of_format = group.has("format") ? group : reader;
  const std::string format = of_format.text("format", "float-quantized");
  const SettingsReader weights = group.object("weights");
  if (format == "nvfp4-pack-quantized") return read_nvfp4(weights);
  const std::string type = weights.text("type", "int");
  if (type == "int") return read_integers(weights, format);
  if (type != "float")
    refuse_value(weights, "type", quoted(type), "\"int\" and \"float\" are read");
  if (format != "float-quantized" && format != "naive-quantized")
    refuse_value(of_format, "format", quoted(format),
                 "\"float-quantized\" (FP8), \"nvfp4-pack-quantized\", \"pack-quantized\" and "
                 "\"int-quantized\" are read");
  return read_compressed_fp8(weights);
}

}  // namespace

Quantization read_compressed_tensors(const SettingsReader& reader) {
  require_plain(reader);
  Quantization result;
  result.packing = read_weights(reader);
  constexpr std::string_view expression = "re:";
  for (const std::string& name : reader.texts("ignore")) {
    if (name.starts_with(expression)) {
      result.not_converted_patterns.emplace_back(name.substr(expression.size()), false,
                                                 reader.where() + ": ignore");
    } else {
      result.not_converted.push_back(name);
    }
  }
  return result;
}

}  // namespace finetune::model
