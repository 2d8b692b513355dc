#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::hunyuan {

model::ModelFamily hunyuan_v1_dense();
model::ModelFamily hunyuan_v1_moe();

}  // namespace finetune::models::hunyuan
