#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::smollm {

model::ModelFamily smollm3();

}  // namespace finetune::models::smollm
