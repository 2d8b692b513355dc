// SPDX-License-Identifier: Apache-2.0
#include "model/weight.hpp"

#include "model/detail/unpack.hpp"
#include "model/products.hpp"

namespace finetune::model {

at::Tensor unpacked(const Weight& weight) {
  return weight.packed.empty() ? weight.dense : unpack(weight.packed, weight.compute);
}

at::Tensor matmul(const at::Tensor& x_ND, const Weight& weight, Path path) {
  return product(x_ND, unpacked(weight).t(), path);
}

void matmul_out(at::Tensor& y_NF, const at::Tensor& x_ND, const Weight& weight, Path path) {
  product_out(y_NF, x_ND, unpacked(weight).t(), path);
}

at::Tensor matmul_backward(const at::Tensor& dy_NF, const Weight& weight, Path path) {
  return product(dy_NF, unpacked(weight), path);
}

void matmul_backward_out(at::Tensor& dx_ND, const at::Tensor& dy_NF, const Weight& weight,
                         Path path) {
  product_out(dx_ND, dy_NF, unpacked(weight), path);
}

}  // namespace finetune::model
