#pragma once
// SPDX-License-Identifier: Apache-2.0
// Decoders whose experts, and those that every token takes, are called as DeepSeek calls them.

#include <string>

#include "model/layout.hpp"

namespace finetune::model {

/// ModelFamily::describe of such a family.
inline ParameterTable describe_shared_experts(const Architecture& architecture) {
  TensorNames names;
  names.shared_gate = "mlp.shared_experts.gate_proj";
  names.shared_up = "mlp.shared_experts.up_proj";
  names.shared_down = "mlp.shared_experts.down_proj";
  // The layer behind the last predicts more tokens at once, and is not trained.
  names.foreign = {names.layers + std::to_string(architecture.num_layers) + "."};
  return lay_out(architecture, names);
}

/// ModelFamily::build.
inline ModelPtr build_shared_experts(const Architecture& architecture) {
  return make_decoder(architecture, describe_shared_experts(architecture).decoder);
}

}  // namespace finetune::model
