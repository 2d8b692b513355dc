#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::glm {

model::ModelFamily glm();
model::ModelFamily glm4();
model::ModelFamily glm4_moe();
model::ModelFamily glm4_moe_lite();

}  // namespace finetune::models::glm
