#pragma once
// SPDX-License-Identifier: Apache-2.0
// Names of modules, as PEFT and the decks have them.

#include <string>

namespace finetune::model {

/// The module that a tensor is in: "model.layers.0.mlp.up_proj" of its ".weight" or ".bias".
std::string module_of(const std::string& tensor);

/// Its last part: "up_proj".
std::string last_part(const std::string& module);

}  // namespace finetune::model
