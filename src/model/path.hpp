#pragma once
// SPDX-License-Identifier: Apache-2.0
// What computes the ops of a model.

namespace finetune::model {

enum class Path {
  kernels,   ///< those of src/kernels for float and bfloat16 on the CPU; else as `composed`
  widened,   ///< as `kernels`, and the CPU's products of narrow floats are computed in fp32
  composed,  ///< compositions of ATen functions, on any device: lets a CPU run what a GPU runs
};

}  // namespace finetune::model
