#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::minimax {

model::ModelFamily minimax_m2();

}  // namespace finetune::models::minimax
