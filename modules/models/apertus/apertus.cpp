// SPDX-License-Identifier: Apache-2.0
// Apertus: norms of heads, and a feed-forward part without a gate whose activation is learnt.
#include "models/apertus/apertus.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::apertus {
namespace {

model::Architecture read(const core::Json& config, const std::string& where) {
  const core::Json whole = model::with_rope(config, {{"rope_type", "llama3"},
                                                     {"rope_theta", 12e6},
                                                     {"factor", 8.0},
                                                     {"low_freq_factor", 1.0},
                                                     {"high_freq_factor", 4.0},
                                                     {"original_max_position_embeddings", 8192}});
  const model::ConfigReader reader(whole, where);
  model::Architecture a;
  a.rope_theta = 12e6;
  model::read_decoder(reader, a, {.norm_eps = 1e-5});
  model::read_biases(reader, a);
  reader.require_false("mlp_bias");
  if (reader.boolean("post_norm", false) || !reader.boolean("qk_norm", true))
    reader.fail_unsupported("post_norm", "or qk_norm is another than published",
                            "norms are of what blocks read, and of heads");
  a.activation = {model::read_activation(reader, "hidden_act", "xielu"), /*is_gated=*/false};
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.head_norm = model::HeadNorm::weighted});
  return a;
}

model::TensorNames names() {
  model::TensorNames names;
  names.attention_norm = "attention_layernorm";
  names.feed_forward_norm = "feedforward_layernorm";
  return names;
}

}  // namespace

model::ModelFamily apertus() {
  return model::decoder_family<names>("apertus", read);
}

}  // namespace finetune::models::apertus
