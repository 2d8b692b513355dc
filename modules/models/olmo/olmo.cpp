// SPDX-License-Identifier: Apache-2.0
// OLMo 2 and 3: norms behind attention and feed-forward, and of all heads together. OLMoE: the
// latter and experts.
#include "models/olmo/olmo.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::olmo {
namespace {

using model::Architecture;
using model::ConfigReader;

Architecture read_normed(const ConfigReader& reader, double rope_theta) {
  Architecture a;
  a.rope_theta = rope_theta;
  model::read_decoder(reader, a, {.norm_eps = 1e-5});
  a.qkv_bias = a.attention_out_bias = reader.boolean("attention_bias", false);
  a.norms = model::Norms::after;
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.head_norm = model::HeadNorm::together});
  return a;
}

Architecture read_olmo2(const core::Json& config, const std::string& where) {
  return read_normed({config, where}, 10000);
}

Architecture read_olmo3(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a = read_normed(reader, 500000);
  model::read_windows(reader, 4, 4096, a);
  // Layers that slide are not scaled.
  model::read_window_rope(reader, 500000, a);
  return a;
}

Architecture read_olmoe(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  model::read_decoder(reader, a, {.norm_eps = 1e-5});
  reader.require_false("attention_bias");
  if (reader.has("clip_qkv"))
    reader.fail_unsupported("clip_qkv", "is set", "queries, keys and values are not clipped");
  a.layers.assign(static_cast<std::size_t>(a.num_layers),
                  {.has_experts = true, .head_norm = model::HeadNorm::together});
  a.experts.num = reader.size("num_experts", 64);
  a.experts.top_k = reader.size("num_experts_per_tok", 8);
  a.experts.d_ff = a.d_ff;
  a.experts.normalizes = reader.boolean("norm_topk_prob", false);
  a.experts.balance = model::read_balance(reader);
  if (a.experts.top_k > a.experts.num)
    reader.fail("num_experts_per_tok", "exceeds the number of experts", "a token takes each once");
  return a;
}

model::TensorNames names() {
  model::TensorNames names;
  names.attention_added_norm = "post_attention_layernorm";
  names.feed_forward_added_norm = "post_feedforward_layernorm";
  return names;
}

}  // namespace

model::ModelFamily olmo2() {
  return model::decoder_family<names>("olmo2", read_olmo2);
}

model::ModelFamily olmoe() {
  return model::decoder_family("olmoe", read_olmoe);
}

model::ModelFamily olmo3() {
  return model::decoder_family<names>("olmo3", read_olmo3);
}

}  // namespace finetune::models::olmo
