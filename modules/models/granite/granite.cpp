// SPDX-License-Identifier: Apache-2.0
// Granite, those without experts: what blocks add, attention and logits are scaled.
#include "models/granite/granite.hpp"

#include <cmath>

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::granite {
namespace {

using model::Architecture;
using model::ConfigReader;

/// A factor that is not told is 1, and none is 0.
double read_factor(const ConfigReader& reader, const char* key) {
  const double factor = reader.real(key, 1);
  if (!(factor > 0)) reader.fail(key, "is not positive", "activations are multiplied by it");
  return factor;
}

Architecture read(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  model::read_decoder(reader, a);
  model::read_biases(reader, a);
  a.embedding_scale = read_factor(reader, "embedding_multiplier");
  a.residual_scale = read_factor(reader, "residual_multiplier");
  a.head_scale = 1 / read_factor(reader, "logits_scaling");
  // In the place of 1 / sqrt(K), which attention computes: queries and keys have half of it each.
  const double scores =
      read_factor(reader, "attention_multiplier") * std::sqrt(static_cast<double>(a.head_size));
  a.rope_scaling.amplitude *= std::sqrt(scores);
  return a;
}

}  // namespace

model::ModelFamily granite() {
  return model::decoder_family("granite", read);
}

}  // namespace finetune::models::granite
