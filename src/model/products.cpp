// SPDX-License-Identifier: Apache-2.0
#include "model/products.hpp"

#include "kernels/processor.hpp"
#include "kernels/product.hpp"

namespace finetune::model {
namespace {

template <typename T, typename Element>
kernels::Matrix<Element> matrix_of(const at::Tensor& x) {
  return {static_cast<Element*>(x.data_ptr()), x.size(0), x.size(1), x.stride(0),
          x.size(1) == 1 ? 1 : x.stride(1)};
}

template <typename T>
void widened_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                     kernels::Into into) {
  kernels::product<T>(matrix_of<T, const T>(a), matrix_of<T, const T>(b), matrix_of<T, T>(out),
                      into);
}

void widened_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                     kernels::Into into) {
  // The transpose of a product is the product of the transposes, the other way round.
  if (out.stride(1) != 1 && out.stride(0) == 1) return widened_product(out.t(), b.t(), a.t(), into);
  if (a.scalar_type() == at::kHalf) {
    widened_product<kernels::f16>(out, a, b, into);
  } else {
    widened_product<kernels::bf16>(out, a, b, into);
  }
}

}  // namespace

Path path_for(core::DType compute) {
  const bool is_narrow = compute == core::DType::bf16 || compute == core::DType::f16;
  return is_narrow && !kernels::multiplies(compute) ? Path::widened : Path::kernels;
}

bool is_widened(const at::Tensor& tensor, Path path) {
  return path == Path::widened && tensor.is_cpu() &&
         (tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf);
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b, Path path) {
  if (!is_widened(a, path)) return at::mm(a, b);
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  widened_product(out, a, b, kernels::Into::fresh);
  return out;
}

void product_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Path path) {
  if (is_widened(a, path)) {
    widened_product(out, a, b, kernels::Into::fresh);
  } else {
    at::mm_out(out, a, b);
  }
}

void product_add(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Path path) {
  if (is_widened(a, path)) {
    widened_product(out, a, b, kernels::Into::sum);
  } else {
    out.addmm_(a, b);
  }
}

}  // namespace finetune::model
