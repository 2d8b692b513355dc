#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::ernie {

model::ModelFamily ernie4_5();
model::ModelFamily ernie4_5_moe();

}  // namespace finetune::models::ernie
