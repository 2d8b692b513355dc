// SPDX-License-Identifier: Apache-2.0
// Of CostOps: copies of channels, such as between latents and fused queries, keys and values.

#include "model/cost/cost_ops.hpp"

namespace finetune::model {

/// Of so many heads, each with keys and values of its own.
std::int64_t CostOps::own_number(std::int64_t num_heads) const {
  return own_heads({.num_heads = num_heads, .num_kv_heads = num_heads}).num_heads;
}

std::vector<TensorSize> CostOps::split(const TensorSize& x_NF,
                                       std::initializer_list<std::int64_t> widths) {
  OpCost op{.inputs = {x_NF},
            .forward = {{x_NF.bytes}},
            .backward = {{x_NF.bytes}},
            .gradients = {{x_NF.number, x_NF.bytes}}};
  std::vector<TensorSize> parts;
  for (const std::int64_t width : widths) {
    parts.push_back(tensor(x_NF.rows, width));
    op.outputs.push_back(parts.back().number);
  }
  op.forward_work.passes = {pass(x_NF.rows * x_NF.columns, 2 * static_cast<double>(element_),
                                 static_cast<double>(widths.size()))};
  op.backward_work.passes = {pass(x_NF.rows * x_NF.columns, 2 * static_cast<double>(element_), 1)};
  tape_.record(std::move(op));
  return parts;
}

TensorSize CostOps::join_heads(const TensorSize& q, const TensorSize& kv, const TensorSize& key_NR,
                               const LatentHeads& heads) {
  const std::int64_t num_heads = own_number(heads.num_heads);
  const TensorSize qkv = tensor(q.rows, 3 * num_heads * heads.head_size);
  OpCost op{
      .inputs = {q, kv, key_NR},
      .forward = {{qkv.bytes}},
      .backward = {{q.bytes + kv.bytes + key_NR.bytes}},
      .gradients = {{q.number, q.bytes}, {kv.number, kv.bytes}, {key_NR.number, key_NR.bytes}},
      .outputs = {qkv.number}};
  const auto element = static_cast<double>(element_);
  const bool scales = heads.query_scale != 1;
  const double copies = 5;
  op.forward_work.passes = {pass(qkv.rows * qkv.columns, 2 * element, copies)};
  op.backward_work.passes = {
      pass(q.rows * (q.columns + kv.columns + num_heads * heads.turned), 2 * element, copies)};
  if (scales)
    for (OpWork* work : {&op.forward_work, &op.backward_work})
      work->passes.push_back(pass(q.rows * q.columns, 2 * element, 1));
  if (shares_tokens()) {
    const std::int64_t whole = q.rows * key_NR.columns * element_;
    op.forward.front().bytes += whole;
    op.backward.front().bytes += whole;
    op.forward_work.travels = {travel(Sharers::tp, Travel::Kind::all_gather, whole)};
    op.backward_work.travels = {travel(Sharers::tp, Travel::Kind::reduce_scatter, whole)};
  }
  tape_.record(std::move(op));
  return qkv;
}

/// So many of the channels, copied.
TensorSize CostOps::narrow(const TensorSize& x, std::int64_t columns) {
  const TensorSize y = tensor(x.rows, columns);
  OpCost op{.inputs = {x},
            .forward = {{y.bytes}},
            .backward = {{x.bytes}},
            .gradients = {{x.number, x.bytes}},
            .outputs = {y.number}};
  const auto element = static_cast<double>(element_);
  op.forward_work.passes = {pass(y.rows * y.columns, 2 * element, 1)};
  op.backward_work.passes = {pass(x.rows * x.columns + y.rows * y.columns, element, 2)};
  tape_.record(std::move(op));
  return y;
}

TensorSize CostOps::first_channels(const TensorSize& x, std::int64_t num, std::int64_t size) {
  return narrow(x, own_number(num) * size);
}

TensorSize CostOps::last_channels(const TensorSize& x, std::int64_t size) {
  return narrow(x, size);
}

TensorSize CostOps::join(const TensorSize& x, const TensorSize& y) {
  const TensorSize both = tensor(x.rows, x.columns + y.columns);
  OpCost op{.inputs = {x, y},
            .forward = {{both.bytes}},
            .backward = {{both.bytes}},
            .gradients = {{x.number, x.bytes}, {y.number, y.bytes}},
            .outputs = {both.number}};
  op.forward_work.passes = {pass(both.rows * both.columns, 2 * static_cast<double>(element_), 1)};
  op.backward_work = op.forward_work;
  tape_.record(std::move(op));
  return both;
}

}  // namespace finetune::model
