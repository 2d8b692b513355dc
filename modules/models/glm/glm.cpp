// SPDX-License-Identifier: Apache-2.0
// GLM-4, those without experts: half of a head's channels turn, in pairs.
#include "models/glm/glm.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::glm {
namespace {

using model::Architecture;
using model::ConfigReader;

Architecture read_glm(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  model::read_decoder(
      reader, a, {.head_size = 128, .num_kv_heads = 2, .norm_eps = 1.5625e-7, .turned_part = 0.5});
  a.qkv_bias = reader.boolean("attention_bias", true);
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.rotary = model::Rotary::pairs});
  return a;
}

Architecture read_glm4(const core::Json& config, const std::string& where) {
  Architecture a = read_glm(config, where);
  a.norms = model::Norms::around;
  return a;
}

model::TensorNames names() {
  model::TensorNames names;
  names.gate_up = "mlp.gate_up_proj";
  names.attention_added_norm = "post_self_attn_layernorm";
  names.feed_forward_added_norm = "post_mlp_layernorm";
  return names;
}

}  // namespace

model::ModelFamily glm() {
  return model::decoder_family<names>("glm", read_glm);
}

model::ModelFamily glm4() {
  return model::decoder_family<names>("glm4", read_glm4);
}

}  // namespace finetune::models::glm
