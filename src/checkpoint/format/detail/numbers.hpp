#pragma once
// SPDX-License-Identifier: Apache-2.0
// What stored elements say about the run that wrote them.

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.hpp"

namespace finetune::checkpoint {

/// Elements that no run in good health stores.
struct Outliers {
  std::int64_t count = 0;
  std::int64_t first = 0;  ///< index of the first one
  double value = 0;        ///< of the first one

  void add(std::int64_t index, double its_value);
  /// `later` counted from where it stands in the whole: `offset` elements on.
  void add(const Outliers& later, std::int64_t offset);
};

/// A run of elements in a few numbers.
struct ValueSummary {
  double sum_of_squares = 0;  ///< of the finite ones
  Outliers not_finite;
  Outliers negative;

  void add(const ValueSummary& later, std::int64_t offset);
};

enum class Sign { any, not_negative };

/// Looks at every element of a floating `dtype` (others give nothing). Negative ones are counted
/// for Sign::not_negative only; -0 is none.
ValueSummary numbers_of(core::DType dtype, std::span<const std::byte> elements, Sign sign);

}  // namespace finetune::checkpoint
