#pragma once
// SPDX-License-Identifier: Apache-2.0
// What factors of activations cost; without libtorch, for whoever only plans.

#include "model/cost/adapter_cost.hpp"

namespace finetune::adapters::ia3 {

const model::AdapterCost& cost();

}  // namespace finetune::adapters::ia3
