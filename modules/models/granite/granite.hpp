#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::granite {

model::ModelFamily granite();
model::ModelFamily granitemoe();
model::ModelFamily granitemoeshared();

}  // namespace finetune::models::granite
