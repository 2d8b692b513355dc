#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::gpt {

model::ModelFamily gpt2();
model::ModelFamily gpt_neox();
model::ModelFamily gpt_oss();

}  // namespace finetune::models::gpt
