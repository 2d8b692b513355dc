// SPDX-License-Identifier: Apache-2.0
// Seed-OSS.
#include "models/seed/seed.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::seed {
namespace {

using model::Architecture;
using model::ConfigReader;

Architecture read(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  model::read_decoder(reader, a, {.head_size = 128, .num_kv_heads = 8});
  a.qkv_bias = reader.boolean("attention_bias", true);
  a.attention_out_bias = reader.boolean("attention_out_bias", false);
  a.feed_forward_bias = reader.boolean("mlp_bias", false);
  return a;
}

}  // namespace

model::ModelFamily seed_oss() {
  return model::decoder_family("seed_oss", read);
}

}  // namespace finetune::models::seed
