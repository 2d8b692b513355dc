// SPDX-License-Identifier: Apache-2.0
// MiniMax M2: experts in every layer, norms of all heads together, and a part of a head's channels
// turns.
#include "models/minimax/minimax.hpp"

#include <algorithm>

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::minimax {
namespace {

using model::Architecture;
using model::ConfigReader;

/// What MiniMax's own code has settings for, and transformers has not.
void require_known(const ConfigReader& reader) {
  reader.require_text("qk_norm_type", "per_layer", {"per_layer"});
  for (const char* key : {"use_qk_norm", "use_routing_bias"})
    if (!reader.boolean(key, true))
      reader.fail_unsupported(key, "is false", "these models are computed with it alone");
  if (std::ranges::any_of(reader.numbers("attn_type_list"), [](auto type) { return type != 1; }))
    reader.fail_unsupported("attn_type_list", "holds another type than 1",
                            "linear attention is not computed");
  if (reader.real("shared_intermediate_size", 0) != 0)
    reader.fail_unsupported("shared_intermediate_size", "is not 0",
                            "no expert of these models is shared");
}

constexpr const char* part_key = "partial_rotary_factor";

/// rotary_dim, as a part of a head's channels.
double turned_part(const ConfigReader& reader) {
  const std::int64_t turned = reader.size("rotary_dim"), all = reader.size("head_dim", 128);
  if (turned % 2 != 0 || turned > all)
    reader.fail("rotary_dim", "is no even part of head_dim", "so many of a head's channels turn");
  return static_cast<double>(turned) / static_cast<double>(all);
}

Architecture read(const core::Json& config, const std::string& where) {
  core::Json usual = config;
  if (!config.contains(part_key) && ConfigReader(config, where).has("rotary_dim"))
    usual[part_key] = turned_part({config, where});
  const ConfigReader reader(usual, where);
  require_known(reader);
  Architecture a;
  a.rope_theta = 5e6;
  model::read_decoder(reader, a, {.head_size = 128, .num_kv_heads = 8, .turned_part = 1});
  a.layers.assign(static_cast<std::size_t>(a.num_layers),
                  {.has_experts = true, .head_norm = model::HeadNorm::together});
  model::read_apart_scores(reader, a);
  a.experts.num = reader.size("num_local_experts", 256);
  a.experts.top_k = reader.size("num_experts_per_tok", 8);
  a.experts.d_ff = a.d_ff;
  a.experts.balance = model::read_balance(reader);
  if (a.experts.top_k > a.experts.num)
    reader.fail("num_experts_per_tok", "exceeds num_local_experts", "a token takes each once");
  return a;
}

model::TensorNames names() {
  model::TensorNames names;
  names.router = "block_sparse_moe.gate";
  names.correction = "block_sparse_moe.e_score_correction_bias";
  names.expert = "block_sparse_moe.experts.";
  names.expert_gate = ".w1";
  names.expert_up = ".w3";
  names.expert_down = ".w2";
  return names;
}

}  // namespace

model::ModelFamily minimax_m2() {
  return model::decoder_family<names>("minimax_m2", read);
}

}  // namespace finetune::models::minimax
