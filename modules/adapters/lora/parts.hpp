#pragma once
// SPDX-License-Identifier: Apache-2.0
// The rows of a low-rank part, in the order of model::Adapted::parts.

#include <cstddef>

#include "model/parameter_table.hpp"

namespace finetune::adapters::lora {

/// Of a frozen matrix [out, in]: A [r, in], B [out, r] and, with DoRA, the magnitude [out]. Of an
/// embedding [V, D] they are those of its transpose, A [r, V] and B [D, r], as PEFT has them.
struct LowRank {
  /// The last two: what A and B begin with, where it follows from the matrix, and what is taken off
  /// the product again. So the frozen matrix stays as it is: the model without its adapter is the
  /// one that it was, and PEFT's conversion to an adapter of twice the rank is these rows.
  enum : std::size_t { a, b, magnitude, start_a, start_b };

  static bool has_magnitude(const model::Adapted& adapted) {
    return adapted.parts.size() > magnitude && adapted.parts[magnitude] >= 0;
  }
  static bool has_start(const model::Adapted& adapted) { return adapted.parts.size() > start_b; }
};

}  // namespace finetune::adapters::lora
