#pragma once
// SPDX-License-Identifier: Apache-2.0
// The gated activation of the feed-forward block, on the fused output of gate and up projection.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

/// y = silu(gate) * up, silu(g) = g / (1 + exp(-g)).
///
/// Shapes: gate_up [N, 2F] (a row holds F gates, then F ups), y [N, F] with F = `features`.
/// T is float or bf16; arithmetic is fp32, rounded once.
/// Throws: ErrorKind::bug if sizes do not fit. Source: Shazeer 2020 (arXiv 2002.05202).
template <class T>
void swiglu(std::span<const T> gate_up, std::int64_t features, std::span<T> y,
            const Place& place = {});

/// Shapes: gate_up, d_gate_up [N, 2F] (may be the same memory), dy [N, F].
template <class T>
void swiglu_backward(std::span<const T> dy, std::span<const T> gate_up, std::int64_t features,
                     std::span<T> d_gate_up, const Place& place = {});

}  // namespace finetune::kernels
