// SPDX-License-Identifier: Apache-2.0
// The text of Gemma 4: layers that see everything have larger heads, fewer of keys, and values that
// are the keys; norms of values; what a block gives is scaled. Of the models those are computed
// that have no embeddings of layers, no keys of other layers, and no experts.
#include <cmath>
#include <utility>

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"
#include "models/gemma/gemma.hpp"

namespace finetune::models::gemma {
namespace {

using model::Architecture;
using model::ConfigReader;

void refuse_others(const ConfigReader& reader) {
  const auto is_zero = [&](const char* key) {
    return reader.has(key) && reader.object().at(key) == 0;
  };
  if (!is_zero("hidden_size_per_layer_input"))
    reader.fail_unsupported("hidden_size_per_layer_input", "is not 0",
                            "embeddings of each layer are not computed (E2B, E4B)");
  if (reader.has("num_kv_shared_layers") && !is_zero("num_kv_shared_layers"))
    reader.fail_unsupported("num_kv_shared_layers", "is not 0",
                            "layers that read keys of others are not computed");
  if (reader.boolean("enable_moe_block", false))
    reader.fail_unsupported("enable_moe_block", "is true",
                            "experts beside a dense part are not computed (26B-A4B)");
  if (reader.has("use_bidirectional_attention") &&
      reader.text("use_bidirectional_attention", "") != "vision")
    reader.fail_unsupported("use_bidirectional_attention", "is \"all\"",
                            "tokens see those before them alone");
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
  model::read_windows(reader, 6, reader.size("sliding_window", 512), a);
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
  model::read_decoder(reader, a, 256);
  a.tied_embeddings = reader.boolean("tie_word_embeddings", true);
  a.embedding_scale = std::sqrt(static_cast<double>(a.d_model));
  a.activation.function = model::read_activation(reader, "hidden_activation", "gelu_pytorch_tanh");
  a.qkv_bias = a.attention_out_bias = reader.boolean("attention_bias", false);
  a.norms = model::Norms::around;
  a.norms_values = a.scales_blocks = true;
  if (reader.has("final_logit_softcapping"))
    a.logit_softcap = model::read_factor(reader, "final_logit_softcapping");
  read_layers(reader, a);
  model::read_window_rope(reader, a);
  model::scale_scores(a, 1);
  return a;
}

/// A model that sees and hears, too.
Architecture read_gemma4(const core::Json& config, const std::string& where) {
  const ConfigReader text = model::text_config(config, where);
  return read_text4(text.object(), text.where());
}

model::TensorNames gemma4_names() {
  model::TensorNames names;
  names.attention_added_norm = "post_attention_layernorm";
  names.feed_forward_norm = "pre_feedforward_layernorm";
  names.feed_forward_added_norm = "post_feedforward_layernorm";
  return names;
}

model::TensorNames gemma4_names_of_text() {
  model::TensorNames names = gemma4_names();
  for (std::string* name : {&names.embedding, &names.layers, &names.final_norm})
    name->replace(0, std::string("model.").size(), "model.language_model.");
  names.foreign = {"model.vision_tower.", "model.audio_tower.", "model.embed_vision.",
                   "model.embed_audio."};
  return names;
}

}  // namespace

model::ModelFamily gemma4() {
  return model::decoder_family<gemma4_names_of_text>("gemma4", read_gemma4);
}

model::ModelFamily gemma4_text() {
  return model::decoder_family<gemma4_names>("gemma4_text", read_text4);
}

}  // namespace finetune::models::gemma
