// SPDX-License-Identifier: Apache-2.0
// Gemma 1, 2 and the text of 3: norms whose weights are told as what is above 1, scaled embeddings;
// 2 has norms around and softcaps, 3 norms of heads and windows with positions of their own.
#include "models/gemma/gemma.hpp"

#include <cmath>
#include <utility>

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::gemma {
namespace {

using model::Architecture;
using model::ConfigReader;

Architecture read(const ConfigReader& reader, double rope_theta) {
  Architecture a;
  a.rope_theta = rope_theta;
  model::read_decoder(reader, a, 256);
  a.tied_embeddings = reader.boolean("tie_word_embeddings", true);
  a.norm_kind.weight_offset = 1;
  a.embedding_scale = std::sqrt(static_cast<double>(a.d_model));
  // "hidden_act" is of older programs, and was told wrong.
  a.activation.function = model::read_activation(reader, "hidden_activation", "gelu_pytorch_tanh");
  a.qkv_bias = a.attention_out_bias = reader.boolean("attention_bias", false);
  return a;
}

Architecture read_gemma(const core::Json& config, const std::string& where) {
  return read({config, where}, 10000);
}

/// What 2 and 3 have in common.
void read_around(const ConfigReader& reader, std::int64_t pattern, Architecture& a) {
  a.norms = model::Norms::around;
  for (const auto& [key, cap] : {std::pair("attn_logit_softcapping", &a.score_softcap),
                                 std::pair("final_logit_softcapping", &a.logit_softcap)})
    if (reader.has(key)) *cap = model::read_factor(reader, key);
  a.layers.resize(static_cast<std::size_t>(a.num_layers));
  model::read_windows(reader, reader.size("sliding_window_pattern", pattern),
                      reader.size("sliding_window", 4096), a);
}

void read_scores(const ConfigReader& reader, Architecture& a) {
  model::scale_scores(a, 1 / std::sqrt(model::read_factor(reader, "query_pre_attn_scalar", 256)));
}

Architecture read_gemma2(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a = read(reader, 10000);
  read_around(reader, 2, a);
  read_scores(reader, a);
  return a;
}

Architecture read_text(const ConfigReader& reader) {
  Architecture a = read(reader, 1e6);
  reader.require_false("use_bidirectional_attention");
  read_around(reader, 6, a);
  for (model::Layer& layer : a.layers)
    layer.head_norm = model::HeadNorm::weighted;
  if (reader.has("rope_parameters")) {
    model::read_window_rope(reader, a);
  } else {
    a.window_positions = {.theta = reader.real("rope_local_base_freq", 10000)};
  }
  read_scores(reader, a);
  return a;
}

Architecture read_gemma3_text(const core::Json& config, const std::string& where) {
  return read_text({config, where});
}

/// A model that sees, too. What its configuration leaves out is that of the one with 4B.
Architecture read_gemma3(const core::Json& config, const std::string& where) {
  core::Json text = {{"vocab_size", 262208},
                     {"num_attention_heads", 8},
                     {"num_key_value_heads", 4},
                     {"max_position_embeddings", 131072}};
  text.update(model::text_config(config, where).object());
  return read_text({text, where + ": text_config"});
}

model::TensorNames names() {
  model::TensorNames names;
  names.attention_added_norm = "post_attention_layernorm";
  names.feed_forward_norm = "pre_feedforward_layernorm";
  names.feed_forward_added_norm = "post_feedforward_layernorm";
  return names;
}

model::TensorNames names_of_text() {
  model::TensorNames all = names().below("language_model.");
  all.foreign = {"multi_modal_projector.", "vision_tower."};
  return all;
}

}  // namespace

model::ModelFamily gemma() {
  return model::decoder_family("gemma", read_gemma);
}

model::ModelFamily gemma2() {
  return model::decoder_family<names>("gemma2", read_gemma2);
}

model::ModelFamily gemma3() {
  return model::decoder_family<names_of_text>("gemma3", read_gemma3);
}

model::ModelFamily gemma3_text() {
  return model::decoder_family<names>("gemma3_text", read_gemma3_text);
}

}  // namespace finetune::models::gemma
