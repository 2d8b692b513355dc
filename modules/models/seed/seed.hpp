#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::seed {

model::ModelFamily seed_oss();

}  // namespace finetune::models::seed
