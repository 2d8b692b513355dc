// SPDX-License-Identifier: Apache-2.0
// DeepSeek 2 and 3, and those that have their shape: queries, keys and values are made of latents,
// and the layers behind the first ones have experts.
#include "models/deepseek/deepseek.hpp"

#include "model/config_json.hpp"
#include "model/shared_expert_family.hpp"

namespace finetune::models::deepseek {
namespace {

using model::Architecture;
using model::ConfigReader;

void require_experts_in_every_layer(const ConfigReader& reader) {
  if (reader.size("moe_layer_freq", 1) != 1)
    reader.fail_unsupported("moe_layer_freq", "is not 1",
                            "all layers behind the first ones have experts");
}

Architecture read_v2(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  model::read_latent_decoder(reader, a);
  require_experts_in_every_layer(reader);
  model::read_softmax_experts(reader, {.num = 64, .top_k = 6, .d_ff = 1407}, a, 0);
  return a;
}

Architecture read_v3(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  model::read_latent_decoder(reader, a);
  require_experts_in_every_layer(reader);
  const model::Experts unsaid = {.num = 256,
                                 .top_k = 8,
                                 .d_ff = 2048,
                                 .num_groups = 8,
                                 .top_k_groups = 4,
                                 .weight_scale = 2.5};
  model::read_grouped_experts(reader, unsaid, a, 3);
  return a;
}

}  // namespace

model::ModelFamily deepseek_v2() {
  return {"deepseek_v2",
          {"deepseek_v2"},
          read_v2,
          model::describe_shared_experts,
          model::build_shared_experts};
}

model::ModelFamily deepseek_v3() {
  return {"deepseek_v3",
          {"deepseek_v3", "kimi_k2"},
          read_v3,
          model::describe_shared_experts,
          model::build_shared_experts};
}

}  // namespace finetune::models::deepseek
