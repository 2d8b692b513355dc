// SPDX-License-Identifier: Apache-2.0
// Granite, those without experts: what blocks add, attention and logits are scaled.
#include "models/granite/granite.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::granite {
namespace {

using model::Architecture;
using model::ConfigReader;

Architecture read(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  model::read_decoder(reader, a);
  model::read_biases(reader, a);
  a.embedding_scale = model::read_factor(reader, "embedding_multiplier");
  a.residual_scale = model::read_factor(reader, "residual_multiplier");
  a.head_scale = 1 / model::read_factor(reader, "logits_scaling");
  model::scale_scores(a, model::read_factor(reader, "attention_multiplier"));
  return a;
}

}  // namespace

model::ModelFamily granite() {
  return model::decoder_family("granite", read);
}

}  // namespace finetune::models::granite
