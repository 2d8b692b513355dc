#pragma once
// SPDX-License-Identifier: Apache-2.0
// The descriptor of Lion whose moment takes a byte (Dettmers et al. 2021, arXiv 2110.02861).

#include "optim/kind.hpp"

namespace finetune::optimizers::lion8bit {

optim::Kind kind();

}  // namespace finetune::optimizers::lion8bit
