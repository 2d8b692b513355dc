#pragma once
// SPDX-License-Identifier: Apache-2.0
// Gradients for the network and back: narrower on the way, fp32 where they are added.

#include <span>

#include "kernels/element.hpp"

namespace finetune::kernels {

// Both spans of a call have the same size (else ErrorKind::bug).

/// target = source, rounded to nearest, ties to even. In: float, bf16. Out: float, bf16, f16.
/// Finite numbers too large for an f16 become infinite.
template <class In, class Out>
void narrow(std::span<const In> source, std::span<Out> target);

/// sum += terms, in fp32. T: float, bf16, f16.
template <class T>
void add(std::span<const T> terms, std::span<float> sum);

/// sum = 0 + terms: what `add` makes of zeros.
template <class T>
void start_sum(std::span<const T> terms, std::span<float> sum);

/// target = source, exact. T: float, bf16, f16.
template <class T>
void widen(std::span<const T> source, std::span<float> target);

}  // namespace finetune::kernels
