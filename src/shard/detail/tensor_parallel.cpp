// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/tensor_parallel.hpp"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "core/error.hpp"
#include "shard/options.hpp"

namespace finetune::shard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

core::DType dtype_of(const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat) return core::DType::f32;
  if (x.scalar_type() == at::kBFloat16) return core::DType::bf16;
  core::check(x.scalar_type() == at::kHalf, "activations are f32, bf16 or f16");
  return core::DType::f16;
}

/// `terms` is contiguous.
void sum_in_place(comm::Group& tp, const at::Tensor& terms) {
  tp.wait(tp.all_reduce(dtype_of(terms), terms.data_ptr(), terms.numel()));
}

at::Tensor sum_over(comm::Group& tp, const at::Tensor& terms) {
  at::Tensor sum = terms.clone(at::MemoryFormat::Contiguous);
  sum_in_place(tp, sum);
  return sum;
}

/// Carries the group from forward to backward.
struct GroupHolder : torch::CustomClassHolder {
  explicit GroupHolder(comm::Group& group) : tp(group) {}
  comm::Group& tp;
};

struct Shared : torch::autograd::Function<Shared> {
  static Variable forward(AutogradContext* ctx, const Variable& x, comm::Group& tp) {
    ctx->saved_data["tp"] = c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(tp));
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto holder = ctx->saved_data.at("tp").toCapsule();
    return {sum_over(static_cast<GroupHolder&>(*holder).tp, d[0]), {}};
  }
};

struct Summed : torch::autograd::Function<Summed> {
  static Variable forward(AutogradContext*, const Variable& x, comm::Group& tp) {
    return sum_over(tp, x);
  }
  static variable_list backward(AutogradContext*, variable_list d) { return {d[0], {}}; }
};

}  // namespace

TensorParallelOps::TensorParallelOps(model::Weights& weights, const model::ParameterTable& table,
                                     comm::Group& tp, model::Path path, model::Recompute recompute)
    : Ops(weights, path, recompute), table_(table), tp_(tp) {}

at::Tensor TensorParallelOps::shared(const at::Tensor& x_ND) const {
  return Shared::apply(x_ND, tp_);
}

at::Tensor TensorParallelOps::summed(const at::Tensor& x_ND) const {
  return Summed::apply(x_ND, tp_);
}

bool TensorParallelOps::sums_outputs(model::RowRange rows) const {
  const auto& split = table_.row(rows.first).split;
  return split && split->dim == 1;
}

model::AttentionShape TensorParallelOps::own_heads(model::AttentionShape shape) const {
  const auto own = model::held_heads(shape.num_heads, shape.num_kv_heads,
                                     {.tp = tp_.size(), .i_tp = tp_.rank()});
  shape.num_heads = own.num_heads;
  shape.num_kv_heads = own.num_kv_heads;
  return shape;
}

model::IndexRange TensorParallelOps::own_tokens_of_vocabulary(int row) const {
  const auto& held = table_.row(row).held;
  core::check(held && held->boxes.size() == 1, "each rank has a part of the vocabulary");
  const core::Box& box = held->boxes.front();
  return {box.begin[0], box.begin[0] + box.extent[0]};
}

at::Tensor TensorParallelOps::embedding(const at::Tensor& ids_N, int row) {
  const model::IndexRange own = own_tokens_of_vocabulary(row);
  const at::Tensor is_other = ids_N.lt(own.first).logical_or(ids_N.ge(own.last));
  at::Tensor x_ND = Ops::embedding((ids_N - own.first).masked_fill(is_other, 0), row);
  x_ND.masked_fill_(is_other.unsqueeze(1), 0);
  sum_in_place(tp_, x_ND);
  return x_ND;
}

void TensorParallelOps::embedding_backward(const at::Tensor& ids_N, const at::Tensor& d_x_ND,
                                           int row) {
  const model::IndexRange own = own_tokens_of_vocabulary(row);
  const at::Tensor is_other = ids_N.lt(own.first).logical_or(ids_N.ge(own.last));
  Ops::embedding_backward((ids_N - own.first).masked_fill(is_other, 0),
                          d_x_ND.masked_fill(is_other.unsqueeze(1), 0), row);
}

at::Tensor TensorParallelOps::linear(const at::Tensor& x_ND, model::RowRange rows) {
  if (sums_outputs(rows)) return summed(Ops::linear(x_ND, rows));
  return Ops::linear(shared(x_ND), rows);
}

at::Tensor TensorParallelOps::norm_linear(const at::Tensor& x_ND, int norm_row,
                                          model::RowRange rows, double eps) {
  return linear(rms_norm(x_ND, norm_row, eps), rows);
}

std::pair<at::Tensor, at::Tensor> TensorParallelOps::add_norm_linear(const at::Tensor& x_ND,
                                                                     const at::Tensor& residual_ND,
                                                                     int norm_row,
                                                                     model::RowRange rows,
                                                                     double eps) {
  const auto [h_ND, normed] = add_rms_norm(x_ND, residual_ND, norm_row, eps);
  return {h_ND, linear(normed, rows)};
}

at::Tensor TensorParallelOps::swiglu_linear(const at::Tensor& gate_up, model::RowRange rows) {
  return summed(Ops::swiglu_linear(gate_up, rows));
}

at::Tensor TensorParallelOps::head_norm(const at::Tensor& qkv, const model::AttentionShape& shape,
                                        int query_row, int key_row, double eps) {
  return Ops::head_norm(qkv, own_heads(shape), query_row, key_row, eps);
}

at::Tensor TensorParallelOps::tune_temperature(const at::Tensor& qkv,
                                               const model::AttentionShape& shape,
                                               const model::Sequence& sequence,
                                               const model::Temperature& temperature) {
  return Ops::tune_temperature(qkv, own_heads(shape), sequence, temperature);
}

at::Tensor TensorParallelOps::attention(const at::Tensor& qkv, const model::AttentionShape& shape,
                                        const model::Sequence& sequence, std::int64_t i_layer) {
  return Ops::attention(qkv, own_heads(shape), sequence, i_layer);
}

namespace {

/// [N] of every rank -> [ranks, N].
at::Tensor gathered(comm::Group& tp, const at::Tensor& own_N) {
  const at::Tensor all = at::empty({tp.size(), own_N.numel()}, own_N.options());
  tp.wait(tp.all_gather(core::DType::f32, own_N.data_ptr(), all.data_ptr(), own_N.numel()));
  return all;
}

/// What this rank's part of the vocabulary says about a chunk of tokens.
struct OwnLogits {
  at::Tensor logits_NV;  ///< fp32
  at::Tensor label_N;    ///< within the part; 0 where the label is another rank's
  at::Tensor is_own_N;   ///< bool
};

OwnLogits own_logits(const at::Tensor& logits_NV, const at::Tensor& labels_N, std::int64_t first) {
  const std::int64_t size = logits_NV.size(1);
  const at::Tensor label = labels_N - first;
  const at::Tensor is_own = label.ge(0).logical_and(label.lt(size));
  return {logits_NV.to(at::kFloat), label.mul(is_own), is_own};
}

}  // namespace

void TensorParallelOps::score_labels(int row, at::Tensor& logits_NV, const at::Tensor& labels_N,
                                     const at::Tensor& d_log_prob_N, model::LabelScores& scores) {
  const OwnLogits own = own_logits(logits_NV, labels_N, own_tokens_of_vocabulary(row).first);
  const at::Tensor label_N1 = own.label_N.unsqueeze(1);
  const at::Tensor largest = gathered(tp_, own.logits_NV.amax(1)).amax(0);
  at::Tensor exponentials = (own.logits_NV - largest.unsqueeze(1)).exp_();
  const at::Tensor total = sum_over(tp_, exponentials.sum(1));
  const at::Tensor of_label =
      sum_over(tp_, own.logits_NV.gather(1, label_N1).squeeze(1).mul(own.is_own_N));
  scores.is_first_N.copy_(of_label.eq(largest));
  scores.log_prob_N.copy_(of_label - (largest + total.log()));
  if (!d_log_prob_N.defined()) return;
  // d log p(label) / d logits = one at the label - probabilities.
  const at::Tensor d_logits = exponentials.div_(total.unsqueeze(1)).neg_();
  d_logits.scatter_add_(1, label_N1, own.is_own_N.to(at::kFloat).unsqueeze(1));
  logits_NV.copy_(d_logits.mul_(d_log_prob_N.unsqueeze(1)));
}

void TensorParallelOps::complete_head_gradient(at::Tensor& d_x_ND) {
  sum_in_place(tp_, d_x_ND);
}

}  // namespace finetune::shard
