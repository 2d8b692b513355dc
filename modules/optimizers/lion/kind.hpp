#pragma once
// SPDX-License-Identifier: Apache-2.0
// The descriptor of Lion (Chen et al. 2023, arXiv 2302.06675).

#include <vector>

#include "optim/kind.hpp"

namespace finetune::optimizers::lion {

optim::Kind kind();

/// beta1 and beta2, which it reads; lion8bit has the same.
std::vector<optim::OptimizerKey> keys();

}  // namespace finetune::optimizers::lion
