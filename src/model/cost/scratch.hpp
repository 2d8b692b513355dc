#pragma once
// SPDX-License-Identifier: Apache-2.0
// Memory that a thread of the CPU keeps for products and attention in fp32.

#include <cstdint>

namespace finetune::model {

/// For products of narrow floats that are widened.
std::int64_t product_scratch_bytes();

/// For a head of attention in its backward pass, over sequences of `length`. Longer ones than
/// kernels::widened_attention computes need none.
std::int64_t attention_scratch_bytes(std::int64_t length, std::int64_t head_size);

struct Architecture;
struct DeltaHeads;
struct StateHeads;

/// Of layers that remember, for the heads of `threads` threads at the same time in their backward
/// pass over samples of `length`.
std::int64_t memory_scratch_bytes(const Architecture& architecture, std::int64_t threads,
                                  std::int64_t length);

/// What one of its layers remembers of a text.
std::int64_t delta_memory_bytes(const DeltaHeads& heads);
std::int64_t state_memory_bytes(const StateHeads& heads);

}  // namespace finetune::model
