#pragma once
// SPDX-License-Identifier: Apache-2.0
// What factors of activations compute.

#include "model/adapter.hpp"

namespace finetune::adapters::ia3 {

const model::AdapterMath& math();

}  // namespace finetune::adapters::ia3
