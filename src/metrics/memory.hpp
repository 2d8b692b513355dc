#pragma once
// SPDX-License-Identifier: Apache-2.0
// Memory as the program used it, to hold against the plan.

#include <cstdint>

#include "core/memory_use.hpp"

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

/// From here on also counts by what tensors are for (core::MemoryScope): each one made or freed
/// then costs a lock and a look-up. Call it after `count_tensor_bytes`. Tensors that were there
/// before count as activations.
void tell_uses_apart();

/// Ends that again: uses are not told apart, as in a process that has just started.
void tell_uses_together();

/// What was for what in the moment since the last call in which there was most; zeros if uses are
/// not told apart.
core::BytesByUse take_highest_by_use();

/// What of `peak` was for what, at that moment; zeros if uses are not told apart.
core::BytesByUse peak_by_use();

}  // namespace finetune::metrics
