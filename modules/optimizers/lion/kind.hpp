#pragma once
// SPDX-License-Identifier: Apache-2.0
// The descriptor of Lion (Chen et al. 2023, arXiv 2302.06675).

#include "optim/kind.hpp"

namespace finetune::optimizers::lion {

optim::Kind kind();

}  // namespace finetune::optimizers::lion
