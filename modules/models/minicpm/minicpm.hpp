#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::minicpm {

model::ModelFamily minicpm();

}  // namespace finetune::models::minicpm
