// SPDX-License-Identifier: Apache-2.0
// Qwen 1: the same arithmetic as Qwen 2 with as many key heads as query heads, under other names.
#include "model/config_json.hpp"
#include "model/decoder_family.hpp"
#include "models/qwen/qwen.hpp"

namespace finetune::models::qwen {
namespace {

using model::Architecture;

/// Its files say the number format by flags, if at all.
core::DType read_flags(const model::ConfigReader& reader) {
  if (reader.has("torch_dtype")) return model::read_dtype(reader);
  if (reader.boolean("bf16", false)) return core::DType::bf16;
  return reader.boolean("fp16", false) ? core::DType::f16 : core::DType::f32;
}

Architecture read(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  Architecture a;
  a.num_layers = reader.size("num_hidden_layers");
  a.vocab_size = reader.size("vocab_size");
  a.d_model = reader.size("hidden_size");
  a.num_heads = a.num_kv_heads = reader.size("num_attention_heads");
  a.head_size = reader.size("kv_channels", a.d_model / a.num_heads);
  // The file counts gate and up together.
  a.d_ff = reader.size("intermediate_size") / 2;
  // Beyond it positions are stretched and queries scaled, which is not computed here.
  a.max_positions = reader.size("seq_length");
  a.norm_eps = reader.real("layer_norm_epsilon", 1e-6);
  a.init_std = reader.real("initializer_range", 0.02);
  a.rope_theta = reader.real("rotary_emb_base", 10000);
  a.tied_embeddings = reader.boolean("tie_word_embeddings", false);
  a.file_dtype = read_flags(reader);
  a.qkv_bias = true;
  if (reader.real("rotary_pct", 1.0) != 1.0)
    reader.fail_unsupported("rotary_pct", "is not 1", "all channels of a head are rotated here");
  if (!reader.boolean("no_bias", true))
    reader.fail_unsupported("no_bias", "is false", "other biases than c_attn's are not computed");
  if (a.head_size % 2 != 0)
    reader.fail("kv_channels", "is odd", "rotary positions turn pairs of channels");
  if (a.d_ff == 0) reader.fail("intermediate_size", "is below 2", "it counts gate and up together");
  if (a.rope_theta <= 0)
    reader.fail("rotary_emb_base", "is not positive", "angles are powers of it");
  return a;
}

model::TensorNames names() {
  model::TensorNames names;
  names.embedding = "transformer.wte";
  names.layers = "transformer.h.";
  names.final_norm = "transformer.ln_f";
  names.attention_norm = "ln_1";
  names.qkv = "attn.c_attn";
  names.attention_out = "attn.c_proj";
  names.feed_forward_norm = "ln_2";
  names.gate = "mlp.w2";
  names.up = "mlp.w1";
  names.down = "mlp.c_proj";
  return names;
}

}  // namespace

model::ModelFamily qwen1() {
  return model::decoder_family<names>("qwen", read);
}

}  // namespace finetune::models::qwen
