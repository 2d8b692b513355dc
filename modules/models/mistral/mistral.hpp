#pragma once
// SPDX-License-Identifier: Apache-2.0
// Mistral 7B, Nemo and Small, and Mixtral with its experts.

#include "model/family.hpp"

namespace finetune::models::mistral {

model::ModelFamily mistral();
model::ModelFamily mixtral();

}  // namespace finetune::models::mistral
