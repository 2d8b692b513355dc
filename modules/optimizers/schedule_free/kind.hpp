#pragma once
// SPDX-License-Identifier: Apache-2.0
// The descriptor of schedule-free AdamW (Defazio et al. 2024, arXiv 2405.15682).

#include "optim/kind.hpp"

namespace finetune::optimizers::schedule_free {

optim::Kind kind();

}  // namespace finetune::optimizers::schedule_free
