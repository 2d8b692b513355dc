#pragma once
// SPDX-License-Identifier: Apache-2.0
// Llama 2, 3, 3.1, 3.2 and 3.3.

#include "model/family.hpp"

namespace finetune::models::llama {

model::ModelFamily family();

}  // namespace finetune::models::llama
