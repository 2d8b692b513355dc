#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which number format holds what, and how far results may depend on the ranks.

#include <optional>

#include "core/dtype.hpp"
#include "model/fp8.hpp"

namespace finetune::plan {

/// off: sums may come in any order. run: the same ranks give identical bits. topology: any number
/// of data-parallel ranks gives identical bits.
enum class Determinism { off, run, topology };

/// How CPUs multiply bfloat16 and float16: `automatic` is what the oldest processor needs.
enum class CpuProducts { automatic, native, widened };

struct Numbers {
  core::DType compute = core::DType::bf16;  ///< activations, gathered weights, their gradients
  core::DType master = core::DType::f32;    ///< what the optimizer updates; bf16 in bf16-true
  core::DType moments = core::DType::f32;   ///< of the optimizer; bf16 in bf16-true
  core::DType reduce = core::DType::f32;    ///< gradients on the network
  bool scales_loss = false;                 ///< 16-mixed
  bool widens = false;  ///< the CPU computes products of `compute` in fp32 and rounds
  std::optional<model::Fp8Recipe> fp8 = {};  ///< fp8-mixed: how operands of products are scaled
  Determinism determinism = Determinism::off;
  /// The gradient of each micro-batch is looked at before it is added to the step's sum, so it has
  /// a buffer of its own where ranks that share nothing would add to the sum at once.
  bool keeps_passes_apart = false;

  /// Gradients are summed over micro-batches and ranks as 64-bit fixed point.
  bool is_fixed_point() const { return determinism == Determinism::topology; }
  /// Bytes of an element of a gradient sum, and of a gradient on the network.
  std::int64_t sum_bytes() const { return is_fixed_point() ? 8 : 4; }
  std::int64_t wire_bytes() const { return is_fixed_point() ? 8 : core::size_bytes(reduce); }
};

}  // namespace finetune::plan
