// SPDX-License-Identifier: Apache-2.0
// EXAONE 4: norms behind, and where some layers slide the others have no positions.
#include "models/exaone/exaone.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::exaone {
namespace {

using model::Architecture;
using model::ConfigReader;

/// Every so manieth layer sees everything; published files write it as letters, too.
std::int64_t read_pattern(const ConfigReader& reader) {
  const char* key = "sliding_window_pattern";
  if (!reader.has(key) || !reader.object().at(key).is_string()) return reader.size(key, 4);
  if (!reader.has("layer_types")) reader.require_text(key, "LLLG", {"LLLG"});
  return 4;
}

Architecture read(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  model::read_decoder(reader, a, {.num_kv_heads = 32, .norm_eps = 1e-5});
  a.norms = model::Norms::after;
  const bool slides = reader.has("sliding_window") || !reader.names("sliding_window");
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.head_norm = model::HeadNorm::weighted});
  model::read_windows(reader, slides ? read_pattern(reader) : 0, 4096, a);
  for (model::Layer& layer : a.layers)
    if (slides && layer.window == 0) layer.rotary = model::Rotary::none;
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
