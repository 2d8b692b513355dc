// SPDX-License-Identifier: Apache-2.0
// SmolLM 3: some layers have no positions.
#include "models/smollm/smollm.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::smollm {
namespace {

using model::Architecture;
using model::ConfigReader;

Architecture read(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  a.rope_theta = 2e6;
  model::read_decoder(reader, a, {.num_kv_heads = 4, .is_tied = true});
  model::read_biases(reader, a);
  const std::vector<bool> rotates = model::read_rotation(reader, a.num_layers);
  const std::vector<bool> slides = model::read_sliding_layers(reader, a.num_layers, 0);
  const bool uses_window = reader.boolean("use_sliding_window", false);
  const bool has_window = uses_window && reader.has("sliding_window");
  for (std::size_t i = 0; i < rotates.size(); ++i) {
    model::Layer layer;
    if (!rotates[i]) layer.rotary = model::Rotary::none;
    const bool slides_unsaid = has_window && !rotates[i];
    if (reader.has("layer_types") ? uses_window && slides[i] : slides_unsaid)
      layer.window = reader.size("sliding_window");
    a.layers.push_back(layer);
  }
  return a;
}

}  // namespace

model::ModelFamily smollm3() {
  return model::decoder_family("smollm3", read);
}

}  // namespace finetune::models::smollm
