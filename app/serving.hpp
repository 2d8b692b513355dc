#pragma once
// SPDX-License-Identifier: Apache-2.0
// What servers do not take of adapters.

#include <string>
#include <vector>

#include "core/json.hpp"

namespace finetune::app {

/// What of an adapter_config.json vLLM refuses, or needs an option for; a sentence each. By the
/// rules of its loader (vllm/lora/peft_helper.py and its LoRAConfig, 2025).
std::vector<std::string> vllm_notes(const core::Json& adapter_config);

}  // namespace finetune::app
