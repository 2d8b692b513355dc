#pragma once
// SPDX-License-Identifier: Apache-2.0
// What is gathered and reduced together: parallel.bucket.

#include <string>

#include "model/parameter_table.hpp"

namespace finetune::plan {

/// `table` with the units of `bucket`: "BLOCK" leaves those of the model family, "LAYER" makes one
/// of each part of a unit (a block's attention and its feed-forward), "NONE" one of the whole
/// model. Units with trained and frozen rows are cut into one of each kind, and the unit of the
/// adapters stays as it is. Rows keep their order, so what is read as one matrix stays together.
model::ParameterTable regroup(model::ParameterTable table, const std::string& bucket);

}  // namespace finetune::plan
