// SPDX-License-Identifier: Apache-2.0
// GLM 4.5 and later, those with experts: the first layers have none, a part of a head's channels
// turns, by halves, and some norm queries and keys. Flash (lite) has attention with latents.
#include "model/config_json.hpp"
#include "model/shared_expert_family.hpp"
#include "models/glm/glm.hpp"

namespace finetune::models::glm {
namespace {

using model::Architecture;

Architecture read(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  Architecture a;
  model::read_decoder(reader, a, {.num_kv_heads = 8, .norm_eps = 1e-5, .turned_part = 0.5});
  a.qkv_bias = reader.boolean("attention_bias", false);
  const bool has_norms = reader.boolean("use_qk_norm", false);
  a.layers.assign(static_cast<std::size_t>(a.num_layers),
                  {.head_norm = has_norms ? model::HeadNorm::weighted : model::HeadNorm::none});
  model::read_grouped_experts(reader, {.num = 128, .top_k = 8, .d_ff = 1408}, a);
  return a;
}

/// Layers with experts are named, or those behind the first ones.
Architecture read_lite(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  Architecture a;
  model::read_latent_decoder(reader, a, 1e-5);
  model::read_grouped_experts(reader, {.num = 64, .top_k = 4, .d_ff = 1536, .weight_scale = 1.8},
                              a);
  const auto types = reader.texts("mlp_layer_types");
  if (!types.empty() && types.size() != a.layers.size())
    reader.fail("mlp_layer_types", "has another length than num_hidden_layers",
                "it says of each layer whether it has experts");
  for (std::size_t i = 0; i < types.size(); ++i)
    a.layers[i].has_experts = types[i] == "sparse";
  return a;
}

}  // namespace

model::ModelFamily glm4_moe() {
  return {
      "glm4_moe", {"glm4_moe"}, read, model::describe_shared_experts, model::build_shared_experts};
}

model::ModelFamily glm4_moe_lite() {
  return {"glm4_moe_lite",
          {"glm4_moe_lite"},
          read_lite,
          model::describe_shared_experts,
          model::build_shared_experts};
}

}  // namespace finetune::models::glm
