#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::exaone {

model::ModelFamily exaone4();

}  // namespace finetune::models::exaone
