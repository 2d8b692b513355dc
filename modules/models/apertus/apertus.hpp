#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::apertus {

model::ModelFamily apertus();

}  // namespace finetune::models::apertus
