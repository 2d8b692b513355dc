#pragma once
// SPDX-License-Identifier: Apache-2.0
// What low-rank matrices on top of frozen ones compute. Sources: Hu et al. 2021 (arXiv 2106.09685),
// Liu et al. 2024 (DoRA, arXiv 2402.09353).

#include "model/adapter.hpp"

namespace finetune::adapters::lora {

const model::AdapterMath& math();

}  // namespace finetune::adapters::lora
