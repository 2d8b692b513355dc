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
  model::read_decoder(reader, a, {.turned_part = 0.5});
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
