#pragma once
// SPDX-License-Identifier: Apache-2.0
// A pass through a whole model, put together from ops, for the comparison of one rank with several.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "comm/group.hpp"
#include "model/adapter.hpp"
#include "model/block.hpp"
#include "model/layout.hpp"
#include "model/ops.hpp"
#include "model/part.hpp"
#include "model/rope.hpp"
#include "support/weights.hpp"

namespace finetune::tests {

/// A model, perhaps with an adapter, and what is computed with it.
struct Case {
  std::string name;
  model::Architecture architecture;
  model::TensorNames names = {};
  std::optional<model::Adapter> adapter = {};
  model::AdapterSettings settings = {};
  double dropout = 0;
  std::int64_t batch = 2;
  std::int64_t length = 11;
  std::vector<model::Stretch> stretches = {};
  bool has_prompt = true;  ///< some tokens have no label
  double balance = 0;
  bool balances_all = false;  ///< the load is that of all layers
  model::Recompute recompute = model::Recompute::nothing;
  at::ScalarType dtype = at::kFloat;
  std::int64_t id_step = 7;  ///< from one token's id to the next one's

  std::int64_t num_tokens() const { return batch * length; }
  friend void PrintTo(const Case& of, std::ostream* out) { *out << of.name; }

  model::ParameterTable table() const {
    model::ParameterTable table = model::lay_out(architecture, names);
    if (adapter) model::put_on(*adapter, settings, "", table);
    return table;
  }
};

/// Numbers with which every part of a model shows in its gradients: attention is not uniform.
inline TableWeights random_weights(const model::ParameterTable& table, at::ScalarType dtype) {
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const model::Parameter& row = table.rows[i];
    at::Tensor values = normal(row.shape, i).mul_(0.25);
    if (row.init == model::Init::ones || row.init == model::Init::row_norms) values.add_(1);
    tensors.push_back(values.to(dtype));
  }
  return {table, tensors};
}

struct PassResults {
  at::Tensor logits_NV;
  model::LabelScores scores;
  at::Tensor balance;
};

inline model::Balance make_balance(const Case& of, double scale) {
  model::Balance balance;
  balance.scale = scale;
  balance.num_samples = of.batch;
  balance.sample_N = at::arange(of.num_tokens()).floor_divide(of.length);
  balance.sum = at::zeros({}, at::kDouble);
  if (!of.balances_all) return balance;
  balance.choices_E = at::zeros({of.architecture.experts.num});
  balance.num_choosing =
      static_cast<double>(of.num_tokens() * of.architecture.num_layers_with_experts());
  return balance;
}

/// Forward and backward; the gradients are in the weights of `ops`.
inline PassResults run_pass(model::Ops& ops, const model::ParameterTable& table, const Case& of,
                            double balance_scale) {
  const model::Architecture& a = of.architecture;
  const std::int64_t num_tokens = of.num_tokens();
  const at::Tensor ids = at::arange(num_tokens).mul(of.id_step).remainder(a.vocab_size);
  at::Tensor labels = at::arange(num_tokens).mul(of.id_step - 2).add(3).remainder(a.vocab_size);
  if (of.has_prompt) labels.narrow(0, 0, num_tokens / 3).fill_(-100);
  model::Balance balance = make_balance(of, balance_scale);
  model::Sequence sequence = of.stretches.empty()
                                 ? model::make_sequence(a, of.batch, of.length)
                                 : model::make_sequence(a, of.batch, of.length, of.stretches);
  if (of.balance != 0) sequence.balance = &balance;
  if (of.dropout > 0)
    ops.set_dropout(model::DropoutMask{of.dropout, 7, at::arange(1000, 1000 + num_tokens)});

  std::vector<at::Tensor> inputs = {ops.embedding(ids, table.decoder.embedding)}, outputs;
  for (std::size_t i = 0; i < table.decoder.blocks.size(); ++i) {
    inputs.back() = inputs.back().detach().set_requires_grad(true);
    outputs.push_back(model::decoder_block(ops, a, table.decoder.blocks[i], inputs.back(), sequence,
                                           static_cast<std::int64_t>(i)));
    inputs.push_back(outputs.back());
  }
  balance.is_counting = false;
  const at::Tensor x = inputs.back().detach().set_requires_grad(true);
  const at::Tensor normed = ops.norm(x, {table.decoder.final_norm, a.norm_eps});
  PassResults results;
  results.logits_NV = ops.logits(ops.all_tokens(normed.detach()), table.decoder.head);
  const at::Tensor d_log_prob = at::arange(1, num_tokens + 1).to(at::kFloat).mul_(-0.1);
  at::Tensor d_normed;
  results.scores =
      ops.pull_back_label_scores(normed.detach(), labels, table.decoder.head, d_log_prob, d_normed);
  at::Tensor d_x = torch::autograd::grad({normed}, {x}, {d_normed})[0];
  for (std::size_t i = outputs.size(); i-- > 0;)
    d_x = torch::autograd::grad({outputs[i]}, {inputs[i]}, {d_x})[0];
  ops.embedding_backward(ids, d_x, table.decoder.embedding);
  results.balance = balance.sum;
  return results;
}

/// A box of a tensor; a view.
inline at::Tensor box_of(const at::Tensor& whole, const core::Box& box) {
  at::Tensor part = whole;
  for (std::size_t dim = 0; dim < box.begin.size(); ++dim)
    part = part.narrow(static_cast<std::int64_t>(dim), box.begin[dim], box.extent[dim]);
  return part;
}

inline std::int64_t split_dim(const model::Parameter& row) {
  return row.split ? static_cast<std::int64_t>(row.split->dim) : 0;
}

/// What this rank holds of every row's tensor.
inline TableWeights own_weights(const model::ParameterTable& own, const TableWeights& whole) {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < std::ssize(own.rows); ++i) {
    const model::Parameter& row = own.row(i);
    if (!row.held) {
      tensors.push_back(whole.tensor(i));
      continue;
    }
    if (row.held->boxes.empty()) {
      tensors.push_back(at::zeros(row.shape, whole.tensor(i).options()));
      continue;
    }
    std::vector<at::Tensor> parts;
    for (const core::Box& box : row.held->boxes)
      parts.push_back(box_of(whole.tensor(i), box));
    tensors.push_back(at::cat(parts, split_dim(row)).contiguous());
  }
  return {own, tensors};
}

/// The gradient of a whole row from what each rank has of it: what several hold are terms.
inline at::Tensor summed_gradient(comm::Group& group, const model::Parameter& row,
                                  const at::Tensor& own) {
  if (!row.held) return own.to(at::kFloat);
  at::Tensor whole = at::zeros(row.held->shape);
  std::int64_t before = 0;
  for (const core::Box& box : row.held->boxes) {
    const std::int64_t size = box.extent[row.split ? row.split->dim : 0];
    box_of(whole, box).copy_(own.narrow(split_dim(row), before, size));
    before += size;
  }
  group.wait(group.all_reduce(core::DType::f32, whole.data_ptr(), whole.numel()));
  return whole;
}

}  // namespace finetune::tests
