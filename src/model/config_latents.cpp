// SPDX-License-Identifier: Apache-2.0
// Of config.json: attention with latents, as DeepSeek 2 and those after it say it.

#include <algorithm>

#include "model/config_json.hpp"

namespace finetune::model {

void read_latent_decoder(const ConfigReader& config, Architecture& a, double unsaid_eps) {
  const char* turned = "qk_rope_head_dim";
  const char* query = "q_lora_rank";
  a.rotary_size = 0;
  const std::int64_t rotary_size = config.size(turned);
  if (rotary_size % 2 != 0)
    config.fail(turned, "is odd", "rotary positions turn pairs of channels");
  // What turns is a head of its own, whatever head_dim says.
  core::Json usual = config.object();
  usual.erase("head_dim");
  read_decoder({usual, config.where()}, a,
               {.head_size = rotary_size, .norm_eps = unsaid_eps, .turned_part = 1});
  if (a.rotary_size != 0 && a.rotary_size != rotary_size)
    config.fail_unsupported("partial_rotary_factor", "leaves some of qk_rope_head_dim",
                            "all of these channels turn");
  if (a.num_kv_heads != a.num_heads)
    config.fail("num_key_value_heads", "is not num_attention_heads",
                "each head has keys and values of its own, made of the latent");
  config.require_false("attention_bias");
  if (!config.names(query)) config.fail(query, "is missing", "null says that there is none");
  a.rotary_size = rotary_size;
  a.latents = {.d_key_value = config.size("kv_lora_rank"),
               .d_query = config.has(query) ? config.size(query) : 0,
               .unturned = config.size("qk_nope_head_dim"),
               .value_size = config.size("v_head_dim")};
  a.head_size = std::max(a.query_size(), a.value_size());
  const bool are_pairs = config.boolean("rope_interleave", true);
  a.layers.assign(static_cast<std::size_t>(a.num_layers),
                  {.rotary = are_pairs ? Rotary::pairs : Rotary::halves});
}

}  // namespace finetune::model
