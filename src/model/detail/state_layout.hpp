#pragma once
// SPDX-License-Identifier: Apache-2.0
// Of a layer with a state space: its rows of the parameter table.

#include <cstdint>
#include <string>
#include <vector>

#include "model/architecture.hpp"
#include "model/parameter_table.hpp"

namespace finetune::model {

/// In the order of memory: in_proj, conv1d.weight, conv1d.bias, A_log, dt_bias, D, norm.weight and
/// out_proj, with `prefix` before each name. Ranks of tp share the groups, whose heads read the
/// same channels and are normed together.
std::vector<Parameter> state_space_rows(const StateHeads& heads, std::int64_t d_model,
                                        const std::string& prefix);

}  // namespace finetune::model
