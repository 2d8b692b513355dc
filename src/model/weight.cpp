// SPDX-License-Identifier: Apache-2.0
#include "model/weight.hpp"

#include "core/memory_use.hpp"
#include "model/detail/unpack.hpp"
#include "model/products.hpp"

namespace finetune::model {

namespace {

Quantised operand(const Weight& weight) {
  return weight.quantised ? *weight.quantised : quantise_matrix(unpacked(weight), *weight.fp8);
}

}  // namespace

at::Tensor unpacked(const Weight& weight) {
  if (weight.quantised) {
    const core::MemoryScope scope(core::MemoryUse::gathered);
    return dequantised(*weight.quantised, weight.compute);
  }
  return weight.packed.empty() ? weight.dense : unpack(weight.packed, weight.compute);
}

std::int64_t num_outputs(const Weight& weight) {
  if (weight.dense.defined()) return weight.dense.size(0);
  if (weight.quantised) return weight.quantised->values.size(0);
  std::int64_t outputs = 0;
  for (const MatrixPlanes& matrix : weight.packed)
    outputs += matrix.row->shape.front();
  return outputs;
}

at::Tensor matmul(const at::Tensor& x_ND, const Weight& weight, Path path) {
  if (weight.fp8) return fp8_product(x_ND, operand(weight), *weight.fp8, path);
  return product(x_ND, unpacked(weight).t(), path);
}

void matmul_out(at::Tensor& y_NF, const at::Tensor& x_ND, const Weight& weight, Path path) {
  if (weight.fp8) {
    y_NF.copy_(matmul(x_ND, weight, path));
  } else {
    product_out(y_NF, x_ND, unpacked(weight).t(), path);
  }
}

at::Tensor matmul_backward(const at::Tensor& dy_NF, const Weight& weight, Path path) {
  if (weight.fp8) return fp8_product_backward(dy_NF, operand(weight), *weight.fp8, path);
  return product(dy_NF, unpacked(weight), path);
}

void matmul_backward_out(at::Tensor& dx_ND, const at::Tensor& dy_NF, const Weight& weight,
                         Path path) {
  if (weight.fp8) {
    dx_ND.copy_(matmul_backward(dy_NF, weight, path));
  } else {
    product_out(dx_ND, dy_NF, unpacked(weight), path);
  }
}

}  // namespace finetune::model
