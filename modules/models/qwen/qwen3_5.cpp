// SPDX-License-Identifier: Apache-2.0
// Qwen 3 Next and the text of 3.5: three of four layers remember by the gated delta rule, the
// fourth attends, with gates. Heads for several tokens at once are not trained.
#include <algorithm>
#include <utility>

#include "model/decoder_family.hpp"
#include "model/whole_config.hpp"
#include "models/qwen/qwen.hpp"
#include "models/qwen/read.hpp"

namespace finetune::models::qwen {
namespace {

using model::Architecture;
using model::ConfigReader;

void read_memory(const ConfigReader& reader, Architecture& a) {
  model::DeltaHeads& heads = a.delta;
  heads.num_keys = reader.size("linear_num_key_heads", 16);
  const std::int64_t num_values = reader.size("linear_num_value_heads", 32);
  if (num_values % heads.num_keys != 0)
    reader.fail("linear_num_value_heads", "is no multiple of linear_num_key_heads",
                "every key head serves as many value heads");
  heads.values_per_key = num_values / heads.num_keys;
  heads.key_size = reader.size("linear_key_head_dim", 128);
  heads.value_size = reader.size("linear_value_head_dim", 128);
  heads.taps = reader.size("linear_conv_kernel_dim", 4);
}

/// Which layers attend: layer_types, or every full_attention_interval-th.
void read_layers(const ConfigReader& reader, Architecture& a) {
  const std::vector<std::string> types = reader.texts("layer_types");
  if (reader.has("layer_types") && std::ssize(types) != a.num_layers)
    reader.fail("layer_types", "has another length than num_hidden_layers",
                "it says of each layer what it is");
  const std::int64_t interval = reader.size("full_attention_interval", 4);
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.head_norm = model::HeadNorm::weighted});
  for (std::int64_t i = 0; i < a.num_layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (!types.empty() && types[at] != "linear_attention" && types[at] != "full_attention")
      reader.fail_unsupported("layer_types", "holds \"" + types[at] + "\"",
                              "known: linear_attention, full_attention");
    a.layers[at].has_delta_rule =
        types.empty() ? (i + 1) % interval != 0 : types[at] == "linear_attention";
  }
}

Architecture read(const ConfigReader& reader, std::int64_t num_kv_heads) {
  Architecture a;
  model::read_decoder(reader, a,
                      {.head_size = 256, .num_kv_heads = num_kv_heads, .turned_part = 0.25});
  reader.require_false("attention_bias");
  a.norm_kind.weight_offset = 1;
  a.gates_attention = true;
  read_memory(reader, a);
  read_layers(reader, a);
  return a;
}

Architecture read_text(const core::Json& config, const std::string& where) {
  return read({config, where}, 4);
}

Architecture read_part(const core::Json& config, const std::string& where,
                       std::int64_t num_kv_heads) {
  Architecture a = read(model::text_config(config, where), num_kv_heads);
  model::read_ties_of_whole(config, where, /*of_class=*/false, a);
  return a;
}

Architecture read_whole(const core::Json& config, const std::string& where) {
  return read_part(config, where, 4);
}

/// All of them chosen among, one taken by all; the weights sum to 1 unless told otherwise.
void read_shared_experts(const ConfigReader& reader, const model::Experts& unsaid,
                         Architecture& a) {
  read_routing(reader, unsaid, a);
  a.experts.d_shared = reader.size("shared_expert_intermediate_size", 512);
  a.experts.gates_shared = true;
}

Architecture read_next(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a = read(reader, 2);
  a.delta.is_by_key_head = true;
  read_shared_experts(reader, {.num = 512, .top_k = 10, .d_ff = 512}, a);
  return a;
}

Architecture read_whole_with_experts(const core::Json& config, const std::string& where) {
  // They have no layer without.
  core::Json whole = config;
  if (whole.contains("text_config") && whole["text_config"].is_object() &&
      !whole["text_config"].contains("intermediate_size"))
    whole["text_config"]["intermediate_size"] = 1;
  Architecture a = read_part(whole, where, 2);
  read_shared_experts(model::text_config(config, where), {.num = 256, .top_k = 8, .d_ff = 512}, a);
  return a;
}

model::TensorNames names_of_text() {
  model::TensorNames names;
  names.foreign = {"mtp."};
  return names;
}

model::TensorNames names_of_whole() {
  model::TensorNames names = names_below("model.language_model.");
  names.foreign = {"mtp.", "model.visual."};
  return names;
}

model::TensorNames names_of_experts() {
  model::TensorNames names = with_shared_expert(names_of_whole());
  names.fused_gate_up = "mlp.experts.gate_up_proj";
  names.fused_down = "mlp.experts.down_proj";
  names.fused_are_by_outputs = true;
  return names;
}

model::TensorNames names_of_next() {
  model::TensorNames names = with_shared_expert({});
  names.foreign = {"mtp."};
  return names;
}

}  // namespace

model::ModelFamily qwen3_5() {
  return model::decoder_family<names_of_whole>("qwen3_5", read_whole);
}

model::ModelFamily qwen3_5_text() {
  return model::decoder_family<names_of_text>("qwen3_5_text", read_text);
}

model::ModelFamily qwen3_5_moe() {
  return model::decoder_family<names_of_experts>("qwen3_5_moe", read_whole_with_experts);
}

model::ModelFamily qwen3_next() {
  return model::decoder_family<names_of_next>("qwen3_next", read_next);
}

}  // namespace finetune::models::qwen
