#pragma once
// SPDX-License-Identifier: Apache-2.0
// What configurations of Qwen 3 have in common, with pictures and without.

#include "model/config_json.hpp"

namespace finetune::models::qwen {

/// Heads with norms.
void read_normed(const model::ConfigReader& reader, model::Architecture& architecture);

/// The same with experts.
model::Architecture read_experts(const model::ConfigReader& reader);

}  // namespace finetune::models::qwen
