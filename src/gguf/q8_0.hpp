#pragma once
// SPDX-License-Identifier: Apache-2.0
// Blocks of 32 numbers of 8 bits with a scale, as llama.cpp has them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace finetune::gguf {

inline constexpr std::int64_t q8_0_together = 32;
inline constexpr std::int64_t q8_0_bytes = 34;

/// Each block is its scale, largest magnitude / 127 in fp16, and 32 int8: number / scale, rounded,
/// halves away from zero. `values` are whole blocks.
std::vector<std::byte> q8_0(std::span<const float> values);

}  // namespace finetune::gguf
