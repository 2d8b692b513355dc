// SPDX-License-Identifier: Apache-2.0
#include "model/factors.hpp"

#include <ATen/ATen.h>

#include <tuple>

#include "kernels/one_thread.hpp"

namespace finetune::model {
namespace {

/// At the beginning of an allocation, row by row. Products round by how their operands are aligned.
at::Tensor aligned(const at::Tensor& matrix) {
  return matrix.clone(at::MemoryFormat::Contiguous);
}

at::Tensor orthonormal(const at::Tensor& matrix) {
  return std::get<0>(at::linalg_qr(matrix, "reduced"));
}

}  // namespace

std::pair<at::Tensor, at::Tensor> qr(const at::Tensor& matrix) {
  const kernels::OneThread one;
  const auto [q, r] = at::linalg_qr(aligned(matrix), "reduced");
  return {q, r};
}

SingularValues singular_values(const at::Tensor& matrix) {
  const kernels::OneThread one;
  const auto [left, values, right] = at::linalg_svd(aligned(matrix), /*full_matrices=*/false);
  return {left, values, right};
}

SingularValues largest_singular_values(const at::Tensor& matrix, const at::Tensor& guesses,
                                       int num_iterations) {
  const kernels::OneThread one;
  const at::Tensor a = aligned(matrix);
  at::Tensor basis = orthonormal(at::mm(a, aligned(guesses)));
  for (int i = 0; i < num_iterations; ++i) {
    basis = orthonormal(at::mm(a.t(), basis));
    basis = orthonormal(at::mm(a, basis));
  }
  const auto [left, values, right] = at::linalg_svd(at::mm(basis.t(), a), /*full_matrices=*/false);
  return {at::mm(basis, left), values, right};
}

}  // namespace finetune::model
