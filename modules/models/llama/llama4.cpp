// SPDX-License-Identifier: Apache-2.0
#include "models/llama/llama4.hpp"

#include <algorithm>

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::llama {
namespace {

using model::Architecture;
using model::ConfigReader;

std::vector<bool> read_experts_of_layers(const ConfigReader& config, std::int64_t num_layers) {
  std::vector<bool> result(static_cast<std::size_t>(num_layers), false);
  std::vector<std::int64_t> list = config.numbers("moe_layers");
  const std::int64_t step = config.size("interleave_moe_layer_step", 1);
  if (!config.has("moe_layers")) {
    for (std::int64_t i = step - 1; i < num_layers; i += step)
      list.push_back(i);
  }
  for (const std::int64_t i : list) {
    if (i >= num_layers)
      config.fail("moe_layers", "names a layer beyond num_hidden_layers", "layers count from 0");
    result[static_cast<std::size_t>(i)] = true;
  }
  return result;
}

void read_experts(const ConfigReader& config, Architecture& a) {
  a.experts.num = config.size("num_local_experts", 16);
  a.experts.top_k = config.size("num_experts_per_tok", 1);
  a.experts.d_ff = a.experts.d_shared = config.size("intermediate_size");
  a.experts.scales_input = true;
  a.experts.balance = model::read_balance(config);
  if (a.experts.top_k > a.experts.num)
    config.fail("num_experts_per_tok", "exceeds num_local_experts", "a token takes each once");
}

void read_layers(const ConfigReader& config, Architecture& a) {
  const std::vector<bool> rotates = model::read_rotation(config, a.num_layers);
  const std::vector<bool> has_experts = read_experts_of_layers(config, a.num_layers);
  const bool has_norm = config.boolean("use_qk_norm", true);
  const bool tunes = config.boolean("attn_temperature_tuning", true);
  const char* chunk_key = "attention_chunk_size";
  const bool has_no_chunks = config.names(chunk_key) && !config.has(chunk_key);
  const std::int64_t chunk = has_no_chunks ? 0 : config.size(chunk_key, 8192);
  for (std::size_t i = 0; i < rotates.size(); ++i) {
    model::Layer layer;
    layer.has_experts = has_experts[i];
    layer.rotary = rotates[i] ? model::Rotary::pairs : model::Rotary::none;
    layer.chunk = rotates[i] ? chunk : 0;
    layer.tunes_temperature = tunes && !rotates[i];
    if (rotates[i] && has_norm) layer.head_norm = model::HeadNorm::weightless;
    a.layers.push_back(layer);
  }
}

Architecture read_from(const ConfigReader& reader) {
  Architecture a;
  a.rope_theta = 500000;
  model::read_decoder(reader, a, {.head_size = 128, .num_kv_heads = 8, .norm_eps = 1e-5});
  reader.require_false("attention_bias");
  a.d_ff = reader.size("intermediate_size_mlp");
  a.temperature.scale = reader.real("attn_scale", 0.1);
  a.temperature.floor = reader.real("floor_scale", 8192);
  if (a.temperature.floor <= 0)
    reader.fail("floor_scale", "is not positive", "positions are divided by it");
  read_experts(reader, a);
  read_layers(reader, a);
  return a;
}

Architecture read_text(const core::Json& config, const std::string& where) {
  return read_from({config, where});
}

/// A model that sees, too.
Architecture read_whole(const core::Json& config, const std::string& where) {
  return read_from(model::text_config(config, where));
}

model::TensorNames names() {
  model::TensorNames names;
  names.gate = "feed_forward.gate_proj";
  names.up = "feed_forward.up_proj";
  names.down = "feed_forward.down_proj";
  names.router = "feed_forward.router";
  names.fused_gate_up = "feed_forward.experts.gate_up_proj";
  names.fused_down = "feed_forward.experts.down_proj";
  names.shared_gate = "feed_forward.shared_expert.gate_proj";
  names.shared_up = "feed_forward.shared_expert.up_proj";
  names.shared_down = "feed_forward.shared_expert.down_proj";
  return names;
}

model::TensorNames names_of_text() {
  model::TensorNames all = names().below("language_model.");
  all.foreign = {"multi_modal_projector.", "vision_model."};
  return all;
}

}  // namespace

model::ModelFamily llama4() {
  return model::decoder_family<names_of_text>("llama4", read_whole);
}

model::ModelFamily llama4_text() {
  return model::decoder_family<names>("llama4_text", read_text);
}

}  // namespace finetune::models::llama
