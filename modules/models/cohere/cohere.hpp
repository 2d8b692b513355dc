#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::cohere {

model::ModelFamily cohere();
model::ModelFamily cohere2();

}  // namespace finetune::models::cohere
