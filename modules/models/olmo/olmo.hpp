#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::olmo {

model::ModelFamily olmo2();
model::ModelFamily olmo3();
model::ModelFamily olmoe();

}  // namespace finetune::models::olmo
