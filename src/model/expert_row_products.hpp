#pragma once
// SPDX-License-Identifier: Apache-2.0
// Products of rows that are sorted by expert with a matrix per expert: for what an adapter puts on
// top of experts.

#include <ATen/ATen.h>

#include <cstdint>

#include "model/expert_dispatch.hpp"
#include "model/path.hpp"

namespace finetune::model {

/// One launch computes the rows of all experts where the GPU has a kernel that takes them; else
/// there is a product for each expert that has rows. Matrices are [E, out, in] of the dtype of the
/// rows, with any strides.
class ExpertRowProducts {
 public:
  /// `counts`: rows of each expert; outlives this.
  ExpertRowProducts(const RowCounts& counts, bool may_group, Path path)
      : counts_(counts), may_group_(may_group), path_(path) {}

  /// x w^T: [M, in] -> [M, out].
  at::Tensor product(const at::Tensor& x, const at::Tensor& w_EOI) const;
  /// y += x w^T.
  void add_product(at::Tensor& y, const at::Tensor& x, const at::Tensor& w_EOI) const;
  /// dy^T x of each expert's rows, [E, out, in]; zeros without any.
  at::Tensor outer_product(const at::Tensor& dy, const at::Tensor& x) const;

 private:
  const RowCounts& counts_;
  bool may_group_;
  Path path_;
};

}  // namespace finetune::model
