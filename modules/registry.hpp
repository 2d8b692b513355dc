#pragma once
// SPDX-License-Identifier: Apache-2.0
// The one list of everything that modules/ offers.

#include "train/input/registry.hpp"

namespace finetune::modules {

const train::Registry& registry();

}  // namespace finetune::modules
