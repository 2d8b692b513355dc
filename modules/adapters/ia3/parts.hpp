#pragma once
// SPDX-License-Identifier: Apache-2.0
// The rows of factors, in the order of model::Adapted::parts.

#include <cstddef>

#include "model/parameter_table.hpp"

namespace finetune::adapters::ia3 {

/// Of a frozen matrix [out, in] and of the bias that is added to its product: either factors of its
/// outputs [out, 1], or none (-1) and factors of its inputs [1, in].
struct Factors {
  enum : std::size_t { outputs, inputs };

  static bool are_of_inputs(const model::Adapted& adapted) { return adapted.parts.size() > inputs; }
  static int row(const model::Adapted& adapted) { return adapted.parts.back(); }
};

}  // namespace finetune::adapters::ia3
