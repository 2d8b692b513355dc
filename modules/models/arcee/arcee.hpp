#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "model/family.hpp"

namespace finetune::models::arcee {

model::ModelFamily arcee();

}  // namespace finetune::models::arcee
