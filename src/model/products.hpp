#pragma once
// SPDX-License-Identifier: Apache-2.0
// The one place where model code multiplies matrices: by libtorch, or, where a path says so, with
// narrow floats widened to fp32.

#include <ATen/ATen.h>

#include "model/path.hpp"

namespace finetune::model {

/// Whether products of such a tensor widen it: a narrow float on a processor without instructions
/// for it, where libtorch's products are far slower than those of fp32.
bool is_widened(const at::Tensor& tensor, Path path);

/// a b. Shapes: [M, K], [K, N] -> [M, N], with any strides.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, Path path);

/// out = a b.
void product_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Path path);

/// out += a b, rounded once.
void product_add(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Path path);

}  // namespace finetune::model
