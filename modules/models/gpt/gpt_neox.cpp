// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX and Pythia: attention and feed-forward side by side behind a norm each, biases, and one
// product of which each head has its query, key and value together.
#include <fmt/format.h>

#include <tuple>

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"
#include "models/gpt/gpt.hpp"

namespace finetune::models::gpt {
namespace {

/// transformers 4 has names of its own for positions, and where they stand beside rope_parameters
/// transformers 5 reads no others.
core::Json with_usual_positions(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  core::Json usual = config;
  for (const auto& [name, usual_name, unsaid] :
       {std::tuple{"rotary_pct", "partial_rotary_factor", 0.25},
        std::tuple{"rotary_emb_base", "rope_theta", 10000.0}}) {
    const double told = reader.real(name, unsaid);
    if (reader.real(usual_name, told) != told)
      reader.fail_unsupported(usual_name, fmt::format("is not {}", told),
                              fmt::format("in this family \"{}\" says it", name));
    usual[usual_name] = told;
  }
  return usual;
}

model::Architecture read_neox(const core::Json& config, const std::string& where) {
  const core::Json usual = with_usual_positions(config, where);
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
