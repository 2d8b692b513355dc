#pragma once
// SPDX-License-Identifier: Apache-2.0
// What computes the ops of a model.

namespace finetune::model {

enum class Path {
  kernels,   ///< those of src/kernels for float and bfloat16 on the CPU, else as `composed`
  widened,   ///< the same; products of narrow floats in fp32 although the CPU has them
  composed,  ///< compositions of ATen functions, on any device: lets a CPU run what a GPU runs
};

}  // namespace finetune::model
