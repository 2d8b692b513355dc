// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX and Pythia: attention and feed-forward side by side behind a norm each, biases, and one
// product of which each head has its query, key and value together.
#include "model/config_json.hpp"
#include "model/decoder_family.hpp"
#include "models/gpt/gpt.hpp"

namespace finetune::models::gpt {
namespace {

model::Architecture read_neox(const core::Json& config, const std::string& where) {
  // transformers 4 has names of its own for positions.
  core::Json usual = config;
  usual["partial_rotary_factor"] = model::ConfigReader(config, where).real("rotary_pct", 0.25);
  if (config.contains("rotary_emb_base")) usual["rope_theta"] = config["rotary_emb_base"];
  const model::ConfigReader reader(usual, where);
  model::Architecture a;
  model::read_decoder(reader, a, {.turned_part = 0.25});
  a.norm_eps = reader.real("layer_norm_eps", 1e-5);
  a.norm_kind = {.is_centred = true, .has_bias = true};
  a.is_parallel = reader.boolean("use_parallel_residual", true);
  a.activation = {model::read_activation(reader, "hidden_act", "gelu"), /*is_gated=*/false};
  a.qkv_bias = a.attention_out_bias = reader.boolean("attention_bias", true);
  a.feed_forward_bias = true;
  a.qkv_by_key_head = true;
  if (a.num_kv_heads != a.num_heads)
    reader.fail_unsupported("num_key_value_heads", "is not num_attention_heads",
                            "each head has a key and a value of its own");
  return a;
}

model::TensorNames neox_names() {
  model::TensorNames names;
  names.embedding = "gpt_neox.embed_in";
  names.layers = "gpt_neox.layers.";
  names.final_norm = "gpt_neox.final_layer_norm";
  names.head = "embed_out";
  names.qkv = "attention.query_key_value";
  names.attention_out = "attention.dense";
  names.up = "mlp.dense_h_to_4h";
  names.down = "mlp.dense_4h_to_h";
  return names;
}

}  // namespace

model::ModelFamily gpt_neox() {
  return model::decoder_family<neox_names>("gpt_neox", read_neox);
}

}  // namespace finetune::models::gpt
