#pragma once
// SPDX-License-Identifier: Apache-2.0
// The descriptor of Muon (Jordan et al. 2024; Liu et al. 2025, arXiv 2502.16982).

#include "optim/kind.hpp"

namespace finetune::optimizers::muon {

optim::Kind kind();

}  // namespace finetune::optimizers::muon
