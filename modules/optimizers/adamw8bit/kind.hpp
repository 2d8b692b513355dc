#pragma once
// SPDX-License-Identifier: Apache-2.0
// The descriptor of AdamW with moments of 8 bits (Dettmers et al. 2021, arXiv 2110.02861).

#include "optim/kind.hpp"

namespace finetune::optimizers::adamw8bit {

optim::Kind kind();

}  // namespace finetune::optimizers::adamw8bit
