#pragma once
// SPDX-License-Identifier: Apache-2.0
// What low-rank matrices cost on top of frozen ones; without libtorch, for whoever only plans.

#include "model/cost/adapter_cost.hpp"

namespace finetune::adapters::lora {

const model::AdapterCost& cost();

}  // namespace finetune::adapters::lora
