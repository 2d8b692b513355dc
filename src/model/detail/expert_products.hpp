#pragma once
// SPDX-License-Identifier: Apache-2.0
// Products of rows, sorted by expert, with the matrices of the experts that a rank holds.

#include <ATen/ATen.h>

#include <cstdint>

#include "model/architecture.hpp"
#include "model/detail/decoder_rows.hpp"
#include "model/expert_dispatch.hpp"
#include "model/expert_row_products.hpp"
#include "model/gradients.hpp"
#include "model/part.hpp"
#include "model/path.hpp"
#include "model/weight.hpp"
#include "model/weights.hpp"

namespace finetune::model {

/// One call per projection of a layer: rows of the first expert held, then of the next, as many as
/// `counts` says.
///
/// One launch computes the rows of all experts, and nobody waits for `counts`, where all of this
/// holds: the GPU has a kernel (has_grouped_products), the experts' matrices are dense, or there in
/// 8 bits, and lie at one distance (Weights::series), or one tensor has them all, and everything is
/// aligned as the kernel needs it (takes_grouped). Else there is a product for each expert that has
/// rows: on the CPU, on older GPUs, in fp32 and fp16, of experts that are packed, each for itself,
/// or split over units, and for gradients of weights that have operands of 8 bits, which are scaled
/// along the rows of one expert.
///
/// An expert without rows gets no gradient from the products, or zeros. Biases are those of one
/// tensor that holds those of all experts (ExpertRows::gate_up_bias).
class ExpertProducts {
 public:
  enum class Projection { gate_up, down };

  /// `counts` is of the experts of `held` and outlives this.
  ExpertProducts(Weights& weights, const ExpertRows& rows, IndexRange held, const RowCounts& counts,
                 bool may_group, Path path, bool uses_adapter = true)
      : weights_(weights),
        rows_(rows),
        held_(held),
        counts_(counts),
        may_group_(may_group),
        path_(path),
        uses_adapter_(uses_adapter) {}

  /// x W^T, with the biases there are and what adapters put on top of the matrices. Shapes: [M, in]
  /// -> [M, num_outputs].
  at::Tensor product(const at::Tensor& x, Projection projection, std::int64_t num_outputs) const;
  /// dx = dy W. Shapes: [M, out] -> [M, num_inputs].
  at::Tensor backward(const at::Tensor& dy, Projection projection, std::int64_t num_inputs) const;
  /// The dot product of each row of dy with its expert's biases, [M] fp32; undefined without any.
  at::Tensor dots_with_biases(const at::Tensor& dy, Projection projection) const;
  /// Adds dy^T x of each expert to the gradient of its matrix, and the sum of dy to that of its
  /// biases. Afterwards dy may be zero in places.
  void add_gradients(at::Tensor& dy, const at::Tensor& x, Projection projection) const;

 private:
  /// nullptr: nothing.
  const Adapted* adapted(Projection projection) const;
  ExpertRowProducts of_rows() const { return {counts_, may_group_, path_}; }
  bool is_fused() const { return rows_.stride == 0; }
  bool is_by_inputs() const { return is_fused() && !rows_.are_by_outputs; }
  /// The rows of the experts held; where they are one tensor, its row.
  RowSeries series(Projection projection) const;
  /// [E, out, in], or neither dense nor quantised: each is read, or unpacked, for itself.
  Weight matrices(Projection projection) const;
  Weight matrix(const Weight& all, Projection projection, std::int64_t i) const;
  /// Row of the biases; -1: none.
  int biases(Projection projection) const {
    return projection == Projection::gate_up ? rows_.gate_up_bias : rows_.down_bias;
  }
  at::Tensor product_alone(const at::Tensor& x, Projection projection,
                           std::int64_t num_outputs) const;
  at::Tensor backward_alone(const at::Tensor& dy, Projection projection,
                            std::int64_t num_inputs) const;
  at::Tensor experts_of_rows(std::int64_t num_rows) const;
  void add_biases(const at::Tensor& y, Projection projection) const;
  void add_matrix_gradients(at::Tensor& dy, const at::Tensor& x, Projection projection) const;
  void add_bias_gradients(const at::Tensor& dy, Projection projection) const;
  bool takes_together(const at::Tensor& rows, const Weight& all) const;
  bool groups_gradients(const at::Tensor& dy, const at::Tensor& x, Projection projection) const;
  void add_grouped(const at::Tensor& dy, const at::Tensor& x, Projection projection) const;
  void add_fused(at::Tensor& dy, const at::Tensor& x, Projection projection) const;

  Weights& weights_;
  ExpertRows rows_;
  IndexRange held_;
  const RowCounts& counts_;
  bool may_group_;
  Path path_;
  bool uses_adapter_;
};

}  // namespace finetune::model
