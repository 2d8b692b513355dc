#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::nemotron {

model::ModelFamily nemotron();
model::ModelFamily nemotron_h();

}  // namespace finetune::models::nemotron
