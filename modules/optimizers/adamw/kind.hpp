#pragma once
// SPDX-License-Identifier: Apache-2.0
// The descriptor of AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101).

#include <vector>

#include "optim/kind.hpp"

namespace finetune::optimizers::adamw {

optim::Kind kind();

/// The keys it reads; adamw8bit has the same.
std::vector<optim::OptimizerKey> keys();

}  // namespace finetune::optimizers::adamw
