#pragma once
// SPDX-License-Identifier: Apache-2.0
// Names of modules, as PEFT and the decks have them.

#include <string>

namespace finetune::model {

/// The module that a tensor is in: "model.layers.0.mlp.up_proj" of its ".weight" or ".bias".
std::string module_of(const std::string& tensor);

}  // namespace finetune::model
