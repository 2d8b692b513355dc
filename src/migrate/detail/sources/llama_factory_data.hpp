#pragma once
// SPDX-License-Identifier: Apache-2.0
// LLaMA-Factory: its data sets, whose names an index explains.

#include "migrate/detail/source.hpp"

namespace finetune::migrate {

void read_llama_factory(const Node& root, Draft& draft);

}  // namespace finetune::migrate
