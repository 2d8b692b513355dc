// SPDX-License-Identifier: Apache-2.0
#include "model/weight.hpp"

#include "model/detail/unpack.hpp"
#include "model/fp8_products.hpp"
#include "model/products.hpp"

namespace finetune::model {

at::Tensor unpacked(const Weight& weight) {
  return weight.packed.empty() ? weight.dense : unpack(weight.packed, weight.compute);
}

at::Tensor matmul(const at::Tensor& x_ND, const Weight& weight, Path path) {
  if (weight.fp8) return fp8_product(x_ND, unpacked(weight), *weight.fp8, path);
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
  if (weight.fp8) return fp8_product_backward(dy_NF, unpacked(weight), *weight.fp8, path);
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
