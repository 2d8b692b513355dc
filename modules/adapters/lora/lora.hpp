#pragma once
// SPDX-License-Identifier: Apache-2.0
// Low-rank matrices on top of frozen ones: LoRA, and with magnitudes DoRA. Sources: Hu et al. 2021
// (arXiv 2106.09685), Liu et al. 2024 (arXiv 2402.09353).

#include "model/adapter.hpp"

namespace finetune::adapters::lora {

/// `math`: `lora::math()`, or nullptr where nothing is computed.
model::Adapter adapter(const model::AdapterMath* math = nullptr);

/// As model::Adapter::rewrite; for adapters that are more than this.
void rewrite(const model::AdapterSettings& settings, const std::string& where,
             model::ParameterTable& table);

}  // namespace finetune::adapters::lora
