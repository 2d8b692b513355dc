// SPDX-License-Identifier: Apache-2.0
// Phi 3, 3.5, 4 and 4-mini.
#include "models/phi/phi.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::phi {
namespace {

using model::Architecture;
using model::ConfigReader;

Architecture read(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  model::read_decoder(reader, a);
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
