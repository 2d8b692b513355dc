// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5, those without experts.
#include "models/ernie/ernie.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::ernie {
namespace {

using model::Architecture;
using model::ConfigReader;

Architecture read(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  a.rope_theta = 500000;
  model::read_decoder(reader, a, 128);
  a.qkv_bias = a.attention_out_bias = a.feed_forward_bias = reader.boolean("use_bias", false);
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.rotary = model::Rotary::pairs});
  return a;
}

}  // namespace

model::ModelFamily ernie4_5() {
  return model::decoder_family("ernie4_5", read);
}

}  // namespace finetune::models::ernie
