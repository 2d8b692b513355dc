#pragma once
// SPDX-License-Identifier: Apache-2.0
// Products of rows, sorted by expert, with the matrices of the experts that a rank holds.

#include <ATen/ATen.h>

#include <cstdint>
#include <span>

#include "model/architecture.hpp"
#include "model/detail/decoder_rows.hpp"
#include "model/gradients.hpp"
#include "model/part.hpp"
#include "model/path.hpp"
#include "model/weights.hpp"

namespace finetune::model {

/// One call per projection of a layer: rows of the first expert held, then of the next, as many as
/// `counts` says. An expert without rows costs nothing, and its matrices get no gradient.
class ExpertProducts {
 public:
  enum class Projection { gate_up, down };

  /// `counts` has a number for each expert of `held` and outlives this.
  ExpertProducts(Weights& weights, const ExpertRows& rows, IndexRange held,
                 std::span<const std::int64_t> counts, Path path)
      : weights_(weights), rows_(rows), held_(held), counts_(counts), path_(path) {}

  /// y = x W^T. Shapes: x [M, in], y [M, out].
  void product_out(at::Tensor& y, const at::Tensor& x, Projection projection) const;
  /// dx = dy W.
  void backward_out(at::Tensor& dx, const at::Tensor& dy, Projection projection) const;
  /// Adds dy^T x of each expert to the gradient of its matrix.
  void add_gradients(const at::Tensor& dy, const at::Tensor& x, Projection projection) const;

 private:
  bool is_fused() const { return rows_.stride == 0; }
  /// The rows of the expert `i` of those held; of all where they are one tensor.
  RowRange rows_of(Projection projection, std::int64_t i) const;
  Weight matrix(Projection projection, std::int64_t i) const;
  void add_fused(const at::Tensor& dy, const at::Tensor& x, Projection projection) const;

  Weights& weights_;
  ExpertRows rows_;
  IndexRange held_;
  std::span<const std::int64_t> counts_;
  Path path_;
};

}  // namespace finetune::model
