// SPDX-License-Identifier: Apache-2.0
// Arcee's AFM: a feed-forward part without a gate, and the square of ReLU.
#include "models/arcee/arcee.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::arcee {
namespace {

model::Architecture read(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  model::Architecture a;
  model::read_decoder(reader, a, {.norm_eps = 1e-5});
  model::read_biases(reader, a);
  a.activation = {model::read_activation(reader, "hidden_act", "relu2"), /*is_gated=*/false};
  return a;
}

}  // namespace

model::ModelFamily arcee() {
  return model::decoder_family("arcee", read);
}

}  // namespace finetune::models::arcee
