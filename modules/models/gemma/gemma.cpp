// SPDX-License-Identifier: Apache-2.0
// Gemma 1, 2 and the text of 3: norms whose weights are told as what is above 1, scaled embeddings;
// 2 has norms around and softcaps, 3 norms of heads and windows with positions of their own.
#include "models/gemma/gemma.hpp"

#include <cmath>
#include <string>

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"
#include "model/whole_config.hpp"

namespace finetune::models::gemma {
namespace {

using model::Architecture;
using model::ConfigReader;

Architecture read(const ConfigReader& reader, double rope_theta, std::int64_t num_kv_heads) {
  Architecture a;
  a.rope_theta = rope_theta;
  model::read_decoder(reader, a, {.head_size = 256, .num_kv_heads = num_kv_heads, .is_tied = true});
  a.norm_kind.weight_offset = 1;
  a.embedding_scale = std::sqrt(static_cast<double>(a.d_model));
  a.qkv_bias = a.attention_out_bias = reader.boolean("attention_bias", false);
  return a;
}

/// "gelu" was told wrong, and means the other one. Where both keys are there, programs read either.
void read_old_activation(const ConfigReader& reader, Architecture& a) {
  using enum model::Activation::Function;
  const auto function_of = [&](const char* key, const std::string& unsaid) {
    const bool is_old = std::string(key) == "hidden_act" && reader.text(key, unsaid) == "gelu";
    return is_old ? gelu_tanh : model::read_activation(reader, key, unsaid);
  };
  const std::string told = reader.text("hidden_act", "gelu_pytorch_tanh");
  a.activation.function = function_of("hidden_act", told);
  if (function_of("hidden_activation", told == "gelu" ? "gelu_pytorch_tanh" : told) !=
      a.activation.function)
    reader.fail_unsupported("hidden_activation", "is another than hidden_act",
                            "programs read the one or the other");
}

Architecture read_gemma(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a = read(reader, 10000, 16);
  read_old_activation(reader, a);
  return a;
}

/// The cap c of x -> c tanh(x / c), 0 where there is none: `unsaid` without the key, none as null.
double read_cap(const ConfigReader& reader, const char* key, double unsaid) {
  if (reader.has(key)) return model::read_factor(reader, key);
  return reader.names(key) ? 0 : unsaid;
}

/// What 2 and 3 have in common.
void read_around(const ConfigReader& reader, std::int64_t pattern, Architecture& a) {
  a.norms = model::Norms::around;
  // "hidden_act" is of older programs, and was told wrong.
  a.activation.function = model::read_activation(reader, "hidden_activation", "gelu_pytorch_tanh");
  a.layers.resize(static_cast<std::size_t>(a.num_layers));
  model::read_windows(reader, pattern, 4096, a);
}

void read_scores(const ConfigReader& reader, Architecture& a) {
  model::scale_scores(a, 1 / std::sqrt(model::read_factor(reader, "query_pre_attn_scalar", 256)));
}

Architecture read_gemma2(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a = read(reader, 10000, 4);
  if (reader.size("sliding_window_pattern", 2) != 2 && !reader.has("layer_types"))
    reader.fail_unsupported("sliding_window_pattern", "is not 2",
                            "every second layer of these models slides");
  read_around(reader, 2, a);
  a.score_softcap = read_cap(reader, "attn_logit_softcapping", 50);
  a.logit_softcap = read_cap(reader, "final_logit_softcapping", 30);
  read_scores(reader, a);
  return a;
}

Architecture read_text(const ConfigReader& reader) {
  Architecture a = read(reader, 1e6, 4);
  reader.require_false("use_bidirectional_attention");
  read_around(reader, reader.size("sliding_window_pattern", 6), a);
  if (reader.has("attn_logit_softcapping"))
    reader.fail_unsupported("attn_logit_softcapping", "is set",
                            "scores of these models have no cap");
  a.logit_softcap = read_cap(reader, "final_logit_softcapping", 0);
  for (model::Layer& layer : a.layers)
    layer.head_norm = model::HeadNorm::weighted;
  model::read_window_rope(reader, reader.real("rope_local_base_freq", 10000), a);
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
  const ConfigReader reader(text, where + ": text_config");
  if (reader.has("final_logit_softcapping"))
    reader.fail_unsupported("final_logit_softcapping", "is set",
                            "logits of models that see have no cap in some programs");
  Architecture a = read_text(reader);
  model::read_ties_of_whole(config, where, /*of_class=*/true, a);
  return a;
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
