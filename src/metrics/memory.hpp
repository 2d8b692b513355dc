#pragma once
// SPDX-License-Identifier: Apache-2.0
// Memory as the program used it, to hold against the plan.

#include <cstdint>

namespace finetune::metrics {

/// Bytes of tensors in main memory, as libtorch's CPU allocator handed them out (their alignment
/// and the allocator's rounding included).
struct TensorBytes {
  std::int64_t live = 0;
  std::int64_t peak = 0;  ///< highest `live` since counting began or `reset_peak`
};

/// Counts from here on. Wraps libtorch's CPU allocator; call it once, before the first tensor.
/// Tensors that were there before are not counted, and their end is: `live` would be too low.
void count_tensor_bytes();

/// Zeros if nothing is counted.
TensorBytes tensor_bytes();

/// Resets `peak` to what is allocated now.
void reset_peak();

}  // namespace finetune::metrics
