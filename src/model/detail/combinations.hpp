#pragma once
// SPDX-License-Identifier: Apache-2.0
// What of an architecture does not go together.

#include "model/architecture.hpp"

namespace finetune::model {

/// Throws: ErrorKind::bug, of a family that describes what no block computes.
void require_computed(const Architecture& architecture);

}  // namespace finetune::model
