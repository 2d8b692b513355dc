// SPDX-License-Identifier: Apache-2.0
// The text of Gemma 4: layers that see everything have larger heads, fewer of keys, and values that
// are the keys; norms of values; what a block gives is scaled. Small ones have inputs of layers,
// and last layers that read the keys of earlier ones; the one with experts has them beside dense
// parts.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "model/config_json.hpp"
#include "model/layout.hpp"
#include "model/whole_config.hpp"
#include "models/gemma/gemma.hpp"

namespace finetune::models::gemma {
namespace {

using model::Architecture;
using model::ConfigReader;

void refuse_others(const ConfigReader& reader) {
  if (reader.has("use_bidirectional_attention") &&
      reader.text("use_bidirectional_attention", "") != "vision")
    reader.fail_unsupported("use_bidirectional_attention", "is \"all\"",
                            "tokens see those before them alone");
}

/// Zero or a size.
std::int64_t count_or(const ConfigReader& reader, const char* key, std::int64_t otherwise) {
  const bool is_zero = reader.has(key) && reader.object().at(key) == 0;
  return is_zero ? 0 : otherwise == 0 && !reader.has(key) ? 0 : reader.size(key, otherwise);
}

/// Each layer's own input, by token and by what the first block reads.
void read_layer_inputs(const ConfigReader& reader, Architecture& a) {
  a.layer_input_size = count_or(reader, "hidden_size_per_layer_input", 256);
  if (a.layer_input_size > 0 && reader.size("vocab_size_per_layer_input", 262144) != a.vocab_size)
    reader.fail_unsupported("vocab_size_per_layer_input", "is not vocab_size",
                            "every token has inputs of layers");
}

/// Of every layer, beside the dense part.
void read_experts(const ConfigReader& reader, Architecture& a) {
  if (!reader.boolean("enable_moe_block", false)) return;
  a.experts = {.num = reader.size("num_experts"),
               .top_k = reader.size("top_k_experts"),
               .d_ff = reader.size("moe_intermediate_size"),
               .are_beside_dense = true,
               .activation = a.activation};
  if (a.experts.top_k > a.experts.num)
    reader.fail("top_k_experts", "is more than num_experts", "a token takes each once");
  for (model::Layer& layer : a.layers)
    layer.has_experts = true;
}

/// The last layers read the keys and values of the last one before them of their kind.
void share_keys(const ConfigReader& reader, Architecture& a) {
  const std::int64_t num_shared = count_or(reader, "num_kv_shared_layers", 0);
  if (num_shared == 0) return;
  const std::int64_t first = a.num_layers - num_shared;
  const bool is_wide = reader.boolean("use_double_wide_mlp", false);
  for (std::int64_t i = std::max<std::int64_t>(first, 0); i < a.num_layers; ++i) {
    model::Layer& layer = a.layers[static_cast<std::size_t>(i)];
    for (std::int64_t of = 0; of < first; ++of)
      if ((a.layer(of).window > 0) == (layer.window > 0)) layer.keys_of = of;
    if (layer.keys_of < 0)
      reader.fail("num_kv_shared_layers", "leaves no layer with keys of each kind",
                  "those that share them read the last ones before them");
    if (is_wide) layer.d_ff = 2 * a.d_ff;
  }
}

/// What layers that see everything have, by the configuration's own keys or by transformers 5.
std::pair<std::int64_t, std::int64_t> full_heads(const ConfigReader& reader, const Architecture& a,
                                                 std::int64_t i_layer) {
  const bool reads_keys = reader.boolean("attention_k_eq_v", false);
  std::int64_t size = reader.size("global_head_dim", 512);
  std::int64_t num =
      reads_keys ? reader.size("num_global_key_value_heads", a.num_kv_heads) : a.num_kv_heads;
  if (!reader.has("per_layer_config")) return {size, num};
  const core::Json& all = reader.object().at("per_layer_config");
  const std::string layer = std::to_string(i_layer);
  if (!all.is_object() || !all.contains(layer)) return {a.head_size, a.num_kv_heads};
  const ConfigReader own(all.at(layer), reader.where() + ": per_layer_config");
  return {own.size("head_dim", a.head_size), own.size("num_key_value_heads", a.num_kv_heads)};
}

void read_layers(const ConfigReader& reader, Architecture& a) {
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.head_norm = model::HeadNorm::weighted});
  model::read_windows(reader, 6, 512, a);
  a.layers.back().window = 0;  // the last one sees everything, whatever is told
  const bool reads_keys = reader.boolean("attention_k_eq_v", false);
  const std::int64_t of_windows = a.head_size;
  for (std::int64_t i = 0; i < a.num_layers; ++i) {
    model::Layer& layer = a.layers[static_cast<std::size_t>(i)];
    if (layer.window > 0) {
      layer.head_size = of_windows;
      continue;
    }
    const auto [size, num_kv] = full_heads(reader, a, i);
    if (a.num_heads % num_kv != 0)
      reader.fail("num_global_key_value_heads", "does not divide num_attention_heads",
                  "query heads share keys in groups");
    layer.num_kv_heads = num_kv;
    layer.reads_keys = reads_keys;
    layer.head_size = size;
  }
  for (const model::Layer& layer : a.layers)
    a.head_size = std::max(a.head_size, layer.head_size);
  for (const model::Layer& layer : a.layers)
    if (layer.window == 0 && layer.head_size != a.head_size)
      reader.fail_unsupported("per_layer_config", "has layers of several head sizes",
                              "those that see everything have the same, the largest");
}

Architecture read_text4(const core::Json& config, const std::string& where) {
  core::Json whole = config;
  if (!whole.contains("rope_parameters") || whole["rope_parameters"].is_null())
    whole["rope_parameters"] = {
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}},
        {"full_attention",
         {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}}}};
  const ConfigReader reader(whole, where);
  Architecture a;
  refuse_others(reader);
  model::read_decoder(reader, a, {.head_size = 256, .num_kv_heads = 4, .is_tied = true});
  a.embedding_scale = std::sqrt(static_cast<double>(a.d_model));
  a.activation.function = model::read_activation(reader, "hidden_activation", "gelu_pytorch_tanh");
  a.qkv_bias = a.attention_out_bias = reader.boolean("attention_bias", false);
  a.norms = model::Norms::around;
  a.norms_values = a.scales_blocks = true;
  if (reader.has("final_logit_softcapping"))
    a.logit_softcap = model::read_factor(reader, "final_logit_softcapping");
  read_layers(reader, a);
  read_layer_inputs(reader, a);
  share_keys(reader, a);
  read_experts(reader, a);
  model::read_window_rope(reader, 10000, a);
  model::scale_scores(a, 1);
  return a;
}

/// A model that sees and hears, too.
Architecture read_gemma4(const core::Json& config, const std::string& where) {
  const ConfigReader text = model::text_config(config, where);
  Architecture a = read_text4(text.object(), text.where());
  model::read_ties_of_whole(config, where, /*of_class=*/true, a);
  return a;
}

/// `prefix`: of the text's tensors.
model::TensorNames names_of(const Architecture& a, const std::string& prefix) {
  model::TensorNames names;
  names.attention_added_norm = "post_attention_layernorm";
  names.feed_forward_norm = "pre_feedforward_layernorm";
  names.feed_forward_added_norm = "post_feedforward_layernorm";
  for (std::string* name : {&names.embedding, &names.layer_embedding, &names.layer_projection,
                            &names.layer_projection_norm, &names.layers, &names.final_norm})
    name->replace(0, std::string("model.").size(), prefix);
  names.router = "router.proj";
  names.fused_gate_up = "experts.gate_up_proj";
  names.fused_down = "experts.down_proj";
  names.fused_are_by_outputs = true;
  names.experts_norm = "pre_feedforward_layernorm_2";
  names.experts_added_norm = "post_feedforward_layernorm_2";
  names.dense_added_norm = "post_feedforward_layernorm_1";
  // What is published has matrices for keys that nobody reads.
  for (std::int64_t i = 0; i < a.num_layers; ++i)
    if (a.layer(i).keys_of >= 0)
      for (const char* unread : {"k_proj.", "v_proj.", "k_norm."})
        names.foreign.push_back(names.layers + std::to_string(i) + ".self_attn." + unread);
  return names;
}

model::ParameterTable describe_text(const Architecture& a) {
  return model::lay_out(a, names_of(a, "model."));
}

/// Beside what sees and hears.
model::ParameterTable describe_part(const Architecture& a) {
  model::TensorNames names = names_of(a, "model.language_model.");
  for (const char* other : {"vision_tower.", "audio_tower.", "embed_vision.", "embed_audio."})
    names.foreign.push_back(std::string("model.") + other);
  return model::lay_out(a, names);
}

template <model::ParameterTable (*describe)(const Architecture&)>
model::ModelPtr build(const Architecture& a) {
  return model::make_decoder(a, describe(a).decoder);
}

}  // namespace

model::ModelFamily gemma4() {
  return {"gemma4", {"gemma4"}, read_gemma4, describe_part, build<describe_part>};
}

model::ModelFamily gemma4_text() {
  return {"gemma4_text", {"gemma4_text"}, read_text4, describe_text, build<describe_text>};
}

}  // namespace finetune::models::gemma
