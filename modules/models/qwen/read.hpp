#pragma once
// SPDX-License-Identifier: Apache-2.0
// What configurations of Qwen 3 have in common, with pictures and without.

#include <string>

#include "model/config_json.hpp"
#include "model/layout.hpp"

namespace finetune::models::qwen {

/// Heads with norms.
void read_normed(const model::ConfigReader& reader, const model::Unsaid& unsaid,
                 model::Architecture& architecture);

/// The same with experts.
model::Architecture read_experts(const model::ConfigReader& reader, const model::Unsaid& unsaid);

/// Which layers have experts, and how many a token takes. `unsaid`: what it is where it is not
/// told.
void read_routing(const model::ConfigReader& reader, const model::Experts& unsaid,
                  model::Architecture& architecture);

/// Also those of an expert that every token takes.
model::TensorNames with_shared_expert(model::TensorNames names);

/// Of the part of a model that reads and writes text, which is `prefix`; its head is the model's.
model::TensorNames names_below(const std::string& prefix);

}  // namespace finetune::models::qwen
