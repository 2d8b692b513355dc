#pragma once
// SPDX-License-Identifier: Apache-2.0
// The element types of activations and gradients that the kernels know.

#include <cstdint>

namespace finetune::kernels {

/// The bits of a bfloat16; the same memory as core's bf16 bits and c10::BFloat16.
using bf16 = std::uint16_t;

/// The bits of an IEEE half; the same memory as c10::Half. A type of its own, as bf16 is the
/// number.
struct f16 {
  std::uint16_t bits;
};

/// Elements that a piece of elementwise work has at least: fewer stay on the calling thread.
inline constexpr std::int64_t grain_elements = 16384;

}  // namespace finetune::kernels
