// SPDX-License-Identifier: Apache-2.0
// Of CostOps: rows of parameters that are added, or multiplied by.

#include "model/cost/cost_ops.hpp"

namespace finetune::model {

TensorSize CostOps::add_positions(const TensorSize& x_ND, int row, const SequenceSize&) {
  const TensorSize sum = tensor(x_ND.rows, x_ND.columns);
  OpCost op{.inputs = {x_ND}, .outputs = {sum.number}};
  op.kept = {x_ND, tape_.tensor(x_ND.rows, 1, position_bytes)};  // the block's input
  op.forward = {{sum.bytes}};
  const std::int64_t elements = x_ND.rows * x_ND.columns;
  op.forward_work.passes = {pass(elements, 5 * static_cast<double>(element_), 2)};
  if (table_.row(row).trainable)
    op.backward_work.passes = {pass(elements, bytes_.embedding_backward, bytes_.operations)};
  tape_.record(std::move(op));
  return sum;
}

TensorSize CostOps::scale_by(const TensorSize& x_ND, int) {
  const TensorSize y = tensor(x_ND.rows, x_ND.columns);
  OpCost op{.inputs = {x_ND}, .gradients = {{x_ND.number, x_ND.bytes}}, .outputs = {y.number}};
  op.forward = {{y.bytes}};
  op.backward = {{x_ND.bytes}};
  op.forward_work.passes = {pass(y.rows * y.columns, 2 * static_cast<double>(element_), 1)};
  op.backward_work = op.forward_work;
  tape_.record(std::move(op));
  return y;
}

}  // namespace finetune::model
