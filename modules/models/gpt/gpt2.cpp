// SPDX-License-Identifier: Apache-2.0
// GPT-2: learned positions, LayerNorm, biases, no gate, and matrices that lie in the files by
// inputs.
#include <array>
#include <utility>

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"
#include "models/gpt/gpt.hpp"

namespace finetune::models::gpt {
namespace {

/// Sizes under the names that other families have for them.
core::Json with_usual_names(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  core::Json usual = config;
  for (const auto& [name, usual_name] :
       {std::pair{"n_layer", "num_hidden_layers"}, std::pair{"n_embd", "hidden_size"},
        std::pair{"n_head", "num_attention_heads"}})
    usual[usual_name] = reader.size(name);
  // No word of these models: whoever writes them means nothing by it.
  for (const char* other : {"num_key_value_heads", "head_dim"})
    usual.erase(other);
  usual["max_position_embeddings"] = reader.size("n_positions", 1024);
  usual["intermediate_size"] =
      reader.has("n_inner") ? reader.size("n_inner") : 4 * reader.size("n_embd");
  return usual;
}

model::Architecture read_gpt2(const core::Json& config, const std::string& where) {
  const core::Json usual = with_usual_names(config, where);
  const model::ConfigReader reader(usual, where);
  model::Architecture a;
  model::read_decoder(reader, a, {.is_tied = true});
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    reader.require_false(key);
  if (!reader.boolean("scale_attn_weights", true))
    reader.fail_unsupported("scale_attn_weights", "is false",
                            "scores are divided by the root of a head's size");
  a.norm_eps = reader.real("layer_norm_epsilon", 1e-5);
  a.norm_kind = {.is_centred = true, .has_bias = true};
  a.activation = {model::read_activation(reader, "activation_function", "gelu_new"),
                  /*is_gated=*/false};
  a.qkv_bias = a.attention_out_bias = a.feed_forward_bias = true;
  a.learns_positions = true;
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.rotary = model::Rotary::none});
  return a;
}

model::TensorNames gpt2_names() {
  model::TensorNames names;
  names.embedding = "transformer.wte";
  names.positions = "transformer.wpe";
  names.layers = "transformer.h.";
  names.final_norm = "transformer.ln_f";
  names.attention_norm = "ln_1";
  names.qkv = "attn.c_attn";
  names.attention_out = "attn.c_proj";
  names.feed_forward_norm = "ln_2";
  names.up = "mlp.c_fc";
  names.down = "mlp.c_proj";
  names.blocks_are_by_inputs = true;
  return names;
}

}  // namespace

model::ModelFamily gpt2() {
  return model::decoder_family<gpt2_names>("gpt2", read_gpt2);
}

}  // namespace finetune::models::gpt
