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

struct DeltaHeads;

/// For a key head of a layer that remembers, in its backward pass over samples of `length`.
std::int64_t delta_rule_scratch_bytes(std::int64_t length, const DeltaHeads& heads);

/// What one of its layers remembers of a text.
std::int64_t delta_memory_bytes(const DeltaHeads& heads);

}  // namespace finetune::model
