#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::phi {

model::ModelFamily phi3();

}  // namespace finetune::models::phi
