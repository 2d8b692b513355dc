#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::starcoder {

model::ModelFamily starcoder2();

}  // namespace finetune::models::starcoder
