#pragma once
// SPDX-License-Identifier: Apache-2.0
// The rows of a low-rank part, in the order of model::Adapted::parts.

#include <cstddef>

#include "model/parameter_table.hpp"

namespace finetune::adapters::lora {

/// Of a frozen matrix [out, in]: A [r, in], B [out, r] and, with DoRA, the magnitude [out].
struct LowRank {
  enum : std::size_t { a, b, magnitude };

  static bool has_magnitude(const model::Adapted& adapted) {
    return adapted.parts.size() > magnitude;
  }
};

}  // namespace finetune::adapters::lora
