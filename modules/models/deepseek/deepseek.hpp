#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::deepseek {

model::ModelFamily deepseek_v2();
/// Kimi K2 as well.
model::ModelFamily deepseek_v3();

}  // namespace finetune::models::deepseek
