#pragma once
// SPDX-License-Identifier: Apache-2.0
// Reductions of a flat span to one number on the host.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"

namespace finetune::kernels {

/// squared_sum adds within blocks of so many elements, then the blocks in their order.
inline constexpr std::int64_t reduction_block = 4096;

/// The sum of squares in fp64. Depends on the values and their number only, never on threads; a cut
/// at multiples of reduction_block whose parts are added block by block gives identical bits.
template <class T>
double squared_sum(std::span<const T> values);

/// True if no element is infinite or NaN.
template <class T>
bool all_finite(std::span<const T> values);

}  // namespace finetune::kernels
