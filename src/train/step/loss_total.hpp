#pragma once
// SPDX-License-Identifier: Apache-2.0
// The sum of losses over micro-batches and ranks.

#include <cstdint>

#include "comm/communicator.hpp"

namespace finetune::train {

/// Adds the losses of micro-batches, each of which is the same whichever rank computed it. Exact,
/// the sum is one of 64-bit integers and does not depend on who added what.
class LossTotal {
 public:
  /// `num_terms`: not less than what all ranks add together, and the same on any number of ranks.
  LossTotal(bool is_exact, std::int64_t num_terms) : is_exact_(is_exact), num_terms_(num_terms) {}

  void add(double loss);

  /// Infinite or NaN if a loss was, or if one is too large for the integers (2^31 / num_terms).
  /// Collective on `batch`.
  double all_reduce(const comm::Communicator& batch) const;

 private:
  bool is_exact_;
  std::int64_t num_terms_;
  std::int64_t fixed_ = 0;
  double sum_ = 0;
};

}  // namespace finetune::train
