// SPDX-License-Identifier: Apache-2.0
// EXAONE 4: norms behind, and where some layers slide the others have no positions.
#include "models/exaone/exaone.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::exaone {
namespace {

using model::Architecture;
using model::ConfigReader;

Architecture read(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  model::read_decoder(reader, a);
  a.norms = model::Norms::after;
  const std::int64_t window = reader.has("sliding_window")     ? reader.size("sliding_window")
                              : reader.names("sliding_window") ? 0
                                                               : 4096;
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.head_norm = model::HeadNorm::weighted});
  model::read_windows(reader, 4, window, a);
  for (model::Layer& layer : a.layers)
    if (window > 0 && layer.window == 0) layer.rotary = model::Rotary::none;
  return a;
}

model::TensorNames names() {
  model::TensorNames names;
  names.attention_added_norm = "post_attention_layernorm";
  names.feed_forward_added_norm = "post_feedforward_layernorm";
  return names;
}

}  // namespace

model::ModelFamily exaone4() {
  return model::decoder_family<names>("exaone4", read);
}

}  // namespace finetune::models::exaone
