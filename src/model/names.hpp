#pragma once
// SPDX-License-Identifier: Apache-2.0
// Names of modules, as PEFT and the decks have them.

#include <string>
#include <vector>

namespace finetune::model {

/// The module that a tensor is in: "model.layers.0.mlp.up_proj" of its ".weight" or ".bias".
std::string module_of(const std::string& tensor);

/// Its last part: "up_proj".
std::string last_part(const std::string& module);

/// What the model that transformers makes of the files, and so PEFT, calls a tensor of the files;
/// an adapter's part likewise.
std::string name_in_transformers(const std::string& tensor);
/// The names of the module that a tensor is in: in the files, and in transformers' model if that is
/// another.
std::vector<std::string> module_names(const std::string& tensor);

}  // namespace finetune::model
