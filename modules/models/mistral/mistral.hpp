#pragma once
// SPDX-License-Identifier: Apache-2.0
// Mistral 7B, Nemo and Small, the text part of those that see, and Mixtral with its experts.

#include "model/family.hpp"

namespace finetune::models::mistral {

model::ModelFamily mistral();
model::ModelFamily ministral3();
model::ModelFamily mistral3();
model::ModelFamily mixtral();

}  // namespace finetune::models::mistral
