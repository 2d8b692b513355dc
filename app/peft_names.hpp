#pragma once
// SPDX-License-Identifier: Apache-2.0
// What an exported adapter calls modules and tensors: as the model does that transformers makes of
// the files, which PEFT puts it on.

#include <string>

#include "core/json.hpp"
#include "model/parameter_table.hpp"

namespace finetune::app {

/// A checkpoint's adapter_config.json under the names of transformers. `table` is that of the model
/// with its adapter. PEFT knows a tie by the name of the head, where the embedding has another one
/// than most, and keeps none for other kinds than low-rank ones: then it is named beside the
/// embedding.
core::Json with_names_of_transformers(core::Json config, const model::ParameterTable& table);

/// Throws: ErrorKind::input, beginning with `where`, for an adapter that PEFT does not load.
void require_loaded_by_peft(const core::Json& config, const model::ParameterTable& table,
                            const std::string& where);

}  // namespace finetune::app
