#pragma once
// SPDX-License-Identifier: Apache-2.0
// What this processor does well.

#include "core/dtype.hpp"

namespace finetune::kernels {

/// Whether this processor has instructions for products of `dtype`, and libtorch may use them:
/// ONEDNN_MAX_CPU_ISA and ATEN_CPU_CAPABILITY let a newer one play an older.
bool multiplies(core::DType dtype);

/// What the choice rests on: "AVX2", "AVX-512", "AVX-512 BF16", "AMX", "NEON", "NEON BF16".
const char* instruction_set();

}  // namespace finetune::kernels
