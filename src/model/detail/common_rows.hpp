#pragma once
// SPDX-License-Identifier: Apache-2.0
// Products of as many rows as an expert happens to have, as products of few different shapes.

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>

#include "model/detail/common_row_count.hpp"
#include "model/path.hpp"

namespace finetune::model {

/// How many rows products like those with `rows` are to be of where there are `count`.
///
/// For narrow floats libtorch has oneDNN compile a kernel for each shape, which takes as long as
/// the product itself of some hundred rows. Experts have other rows in each layer and step, so that
/// nearly every product of theirs would wait for its kernel. It depends on nothing else than
/// `count`: an expert's products are the same wherever it is.
std::int64_t common_row_count(std::int64_t count, const at::Tensor& rows, Path path);

/// Rows [first, first + count) of `out` are those that `product(out, in)` writes of the same rows
/// of `in`; it gets `common` of both, which it has to compute independently of each other. Writes
/// what nobody needs to rows behind, which are to be computed afterwards.
void product_of_common_rows(const at::Tensor& out, const at::Tensor& in, std::int64_t first,
                            std::int64_t count, std::int64_t common,
                            const std::function<void(at::Tensor&, const at::Tensor&)>& product);

/// Rows [first, first + count) of `a` and of `b`, so that a^T b is of `common` rows: those behind
/// are zeros of `a`, which are written there, and whatever neighbours `b` has.
struct CommonRows {
  at::Tensor a, b;
};
CommonRows common_rows(at::Tensor& a, const at::Tensor& b, std::int64_t first, std::int64_t count,
                       std::int64_t common);

}  // namespace finetune::model
