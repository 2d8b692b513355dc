#pragma once
// SPDX-License-Identifier: Apache-2.0
// Of a layer that remembers by the gated delta rule: its rows of the parameter table.

#include <cstdint>
#include <string>
#include <vector>

#include "model/architecture.hpp"
#include "model/parameter_table.hpp"

namespace finetune::model {

/// In the order of memory: in_proj_qkvz and in_proj_ba, or in_proj_qkv, _z, _b and _a;
/// conv1d.weight, A_log, dt_bias, norm.weight and out_proj, with `prefix` before each name.
std::vector<Parameter> delta_rule_rows(const DeltaHeads& heads, std::int64_t d_model,
                                       const std::string& prefix);

}  // namespace finetune::model
