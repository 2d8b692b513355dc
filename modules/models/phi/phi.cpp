// SPDX-License-Identifier: Apache-2.0
// Phi 3, 3.5, 4 and 4-mini.
#include "models/phi/phi.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::phi {
namespace {

using model::Architecture;
using model::ConfigReader;

/// What these models were first trained on stands beside their positions, and is 4096 otherwise.
/// Their "yarn" is longrope under an older name; what the others call so, transformers does not
/// build of them.
core::Json with_original(const core::Json& config, const std::string& where) {
  const char* key = "original_max_position_embeddings";
  core::Json whole = config;
  const bool is_told = ConfigReader(config, where).has(key);
  if (!is_told) whole[key] = 4096;
  for (const char* place : {"rope_scaling", "rope_parameters"}) {
    if (!config.contains(place) || !config[place].is_object()) continue;
    const ConfigReader rope(config[place], where + ": " + place);
    if (!is_told && rope.has(key) && rope.size(key) != 4096)
      rope.fail_unsupported(key, "is not 4096",
                            "programs read it beside this object, and 4096 without it there");
    const std::string kind = rope.text("rope_type", rope.text("type", "default"));
    if (kind == "yarn")
      rope.fail_unsupported(rope.has("rope_type") ? "rope_type" : "type", "is \"yarn\"",
                            "of these models it means what is called longrope now");
  }
  return whole;
}

Architecture read(const core::Json& config, const std::string& where) {
  const core::Json whole = with_original(config, where);
  const ConfigReader reader(whole, where);
  Architecture a;
  model::read_decoder(reader, a, {.norm_eps = 1e-5, .turned_part = 1});
  for (const char* key : {"embd_pdrop", "resid_pdrop"})
    if (reader.real(key, 0) != 0)
      reader.fail_unsupported(key, "is not 0", "activations are not dropped out here");
  const std::int64_t window = reader.has("sliding_window") ? reader.size("sliding_window") : 0;
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.window = window});
  return a;
}

model::TensorNames names() {
  model::TensorNames names;
  names.qkv = "self_attn.qkv_proj";
  names.gate_up = "mlp.gate_up_proj";
  return names;
}

}  // namespace

model::ModelFamily phi3() {
  return model::decoder_family<names>("phi3", read);
}

}  // namespace finetune::models::phi
