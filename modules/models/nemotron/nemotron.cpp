// SPDX-License-Identifier: Apache-2.0
// Nemotron 3 and 4, and Minitron: LayerNorm, no gate, the square of ReLU; a half of each head
// turns.
#include "models/nemotron/nemotron.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::nemotron {
namespace {

model::Architecture read(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  model::Architecture a;
  a.rotary_size = reader.size("hidden_size") / reader.size("num_attention_heads") / 2;
  if (reader.has("head_dim")) a.rotary_size = reader.size("head_dim") / 2;
  model::read_decoder(reader, a);
  model::read_biases(reader, a);
  a.norm_eps = reader.real("norm_eps", 1e-5);
  a.norm_kind = {.is_centred = true, .has_bias = true, .weight_offset = 1};
  a.activation = {model::read_activation(reader, "hidden_act", "relu2"), /*is_gated=*/false};
  return a;
}

}  // namespace

model::ModelFamily nemotron() {
  return model::decoder_family("nemotron", read);
}

}  // namespace finetune::models::nemotron
