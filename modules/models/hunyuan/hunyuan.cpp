// SPDX-License-Identifier: Apache-2.0
// Hunyuan, those without experts: norms of heads come behind positions.
#include "models/hunyuan/hunyuan.hpp"

#include <cmath>

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::hunyuan {
namespace {

using model::ConfigReader;

/// Positions of longer contexts by a larger base, whatever the length of a text.
double base_of(const ConfigReader& rope, const model::Architecture& a) {
  const double alpha = model::read_factor(rope, "alpha");
  const auto size = static_cast<double>(a.head_size);
  return a.rope_theta * std::pow(alpha, size / (size - 2));
}

model::Architecture read(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  model::Architecture a;
  model::read_decoder(reader, a);
  model::read_biases(reader, a);
  a.norm_eps = reader.real("rms_norm_eps", 1e-5);
  a.layers.assign(static_cast<std::size_t>(a.num_layers),
                  {.head_norm = model::HeadNorm::weighted, .turns_before_norm = true});
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!reader.has(key)) continue;
    const ConfigReader rope(reader.object().at(key), where + ": " + key);
    if (rope.text("rope_type", rope.text("type", "default")) == "dynamic")
      a.rope_theta = base_of(rope, a);
  }
  return a;
}

model::TensorNames names() {
  model::TensorNames names;
  names.query_norm = "self_attn.query_layernorm";
  names.key_norm = "self_attn.key_layernorm";
  return names;
}

}  // namespace

model::ModelFamily hunyuan_v1_dense() {
  return model::decoder_family<names>("hunyuan_v1_dense", read);
}

}  // namespace finetune::models::hunyuan
