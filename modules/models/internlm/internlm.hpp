#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::internlm {

model::ModelFamily internlm3();

}  // namespace finetune::models::internlm
