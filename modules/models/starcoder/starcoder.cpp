// SPDX-License-Identifier: Apache-2.0
// StarCoder 2: LayerNorm, biases, and a feed-forward part without a gate.
#include "models/starcoder/starcoder.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::starcoder {
namespace {

model::Architecture read(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  model::Architecture a;
  model::read_decoder(reader, a, {.num_kv_heads = 2, .is_tied = true});
  a.norm_eps = reader.real("norm_epsilon", 1e-5);
  a.norm_kind = {.is_centred = true, .has_bias = true};
  a.activation = {model::read_activation(reader, "hidden_act", "gelu_pytorch_tanh"),
                  /*is_gated=*/false};
  a.qkv_bias = a.attention_out_bias = a.feed_forward_bias = reader.boolean("use_bias", true);
  const std::int64_t window = reader.has("sliding_window") ? reader.size("sliding_window") : 0;
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.window = window});
  return a;
}

model::TensorNames names() {
  model::TensorNames names;
  names.up = "mlp.c_fc";
  names.down = "mlp.c_proj";
  return names;
}

}  // namespace

model::ModelFamily starcoder2() {
  return model::decoder_family<names>("starcoder2", read);
}

}  // namespace finetune::models::starcoder
