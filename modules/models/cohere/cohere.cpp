// SPDX-License-Identifier: Apache-2.0
// Cohere's Command R and Aya: attention and feed-forward read the same norm of a block's input.
#include "models/cohere/cohere.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::cohere {
namespace {

using model::Architecture;
using model::ConfigReader;

Architecture read(const ConfigReader& reader, double rope_theta) {
  Architecture a;
  a.rope_theta = rope_theta;
  model::read_decoder(reader, a, {.is_tied = true});
  a.norm_eps = reader.real("layer_norm_eps", 1e-5);
  a.norm_kind = {.is_centred = true};
  a.is_parallel = a.shares_norm = true;
  a.head_scale = model::read_factor(reader, "logit_scale", 0.0625);
  a.qkv_bias = a.attention_out_bias = reader.boolean("attention_bias", false);
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.rotary = model::Rotary::pairs});
  return a;
}

Architecture read_cohere(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  if (reader.boolean("use_qk_norm", false))
    reader.fail_unsupported("use_qk_norm", "is true",
                            "norms with weights of their own for each head are not computed");
  return read(reader, 500000);
}

/// Command R7B, Command A: layers that see everything have no positions.
Architecture read_cohere2(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a = read(reader, 10000);
  model::read_windows(reader, reader.size("sliding_window_pattern", 4), 4096, a);
  for (model::Layer& layer : a.layers)
    if (layer.window == 0) layer.rotary = model::Rotary::none;
  return a;
}

}  // namespace

model::ModelFamily cohere() {
  return model::decoder_family("cohere", read_cohere);
}

model::ModelFamily cohere2() {
  return model::decoder_family("cohere2", read_cohere2);
}

}  // namespace finetune::models::cohere
