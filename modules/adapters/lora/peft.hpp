#pragma once
// SPDX-License-Identifier: Apache-2.0
// PEFT's options of LoRA and DoRA.

#include <string>
#include <vector>

#include "model/adapter.hpp"

namespace finetune::adapters::lora {

/// As model::Adapter::read_peft and write_peft.
void read_peft(const model::PeftOptions& options, model::AdapterSettings& adapter);
void write_peft(const model::AdapterSettings& adapter, const std::vector<std::string>& adapted,
                core::Json& config);

}  // namespace finetune::adapters::lora
