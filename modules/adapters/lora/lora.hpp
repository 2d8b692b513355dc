#pragma once
// SPDX-License-Identifier: Apache-2.0
// Low-rank matrices on top of frozen ones.

#include "model/adapter.hpp"

namespace finetune::adapters::lora {

model::Adapter adapter();

/// As Adapter::rewrite; for adapters that are more than this.
void rewrite(const model::AdapterSettings& settings, const std::string& where,
             model::ParameterTable& table);

}  // namespace finetune::adapters::lora
