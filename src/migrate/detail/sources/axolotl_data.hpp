#pragma once
// SPDX-License-Identifier: Apache-2.0
// axolotl: its lists of data sets.

#include "migrate/detail/source.hpp"

namespace finetune::migrate {

void read_axolotl(const Node& root, Draft& draft);

}  // namespace finetune::migrate
