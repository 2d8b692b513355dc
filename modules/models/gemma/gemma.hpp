#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::gemma {

model::ModelFamily gemma();
model::ModelFamily gemma2();
model::ModelFamily gemma3();
model::ModelFamily gemma3_text();
model::ModelFamily gemma4();
model::ModelFamily gemma4_text();

}  // namespace finetune::models::gemma
