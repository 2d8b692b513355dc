#pragma once
// SPDX-License-Identifier: Apache-2.0
// The descriptor of Adafactor (Shazeer & Stern 2018, arXiv 1804.04235).

#include "optim/kind.hpp"

namespace finetune::optimizers::adafactor {

optim::Kind kind();

}  // namespace finetune::optimizers::adafactor
