// SPDX-License-Identifier: Apache-2.0
// The head: logits, and what they say of labels.
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "core/error.hpp"
#include "model/activations.hpp"
#include "model/gradients.hpp"
#include "model/ops.hpp"
#include "model/products.hpp"
#include "model/projection.hpp"
#include "model/upload.hpp"
#include "model/weight.hpp"

namespace finetune::model {
namespace {

/// Of N tokens, where `x_ND` is.
LabelScores empty_scores(std::int64_t num_tokens, const at::Tensor& x_ND) {
  return {at::empty({num_tokens}, x_ND.options().dtype(at::kFloat)),
          at::empty({num_tokens}, x_ND.options().dtype(at::kBool))};
}

/// Back to all tokens; those without a label have log-probability 0 and are right.
LabelScores spread(const LabelScores& labelled, const at::Tensor& places, std::int64_t num_tokens) {
  LabelScores all = empty_scores(num_tokens, labelled.log_prob_N);
  all.log_prob_N.zero_().index_copy_(0, places, labelled.log_prob_N);
  all.is_first_N.fill_(true).index_copy_(0, places, labelled.is_first_N);
  return all;
}

/// Of labels each of which is right or not: bit i of a code is label i.
void score_flags(at::Tensor& logits_NC, const at::Tensor& codes_N, const at::Tensor& d_score_N,
                 LabelScores& scores) {
  const at::Tensor x = logits_NC.to(at::kFloat);
  const at::Tensor bits = at::arange(x.size(1), codes_N.options());
  const at::Tensor right = at::bitwise_right_shift(codes_N.unsqueeze(1), bits).bitwise_and(1);
  const at::Tensor target = right.to(at::kFloat);
  scores.log_prob_N.copy_(
      at::binary_cross_entropy_with_logits(x, target, {}, {}, at::Reduction::None).mean(1).neg_());
  scores.is_first_N.copy_(x.gt(0).eq(right.to(at::kBool)).all(1));
  if (!d_score_N.defined()) return;
  const auto num = static_cast<double>(x.size(1));
  logits_NC.copy_((target - x.sigmoid()).mul_(d_score_N.unsqueeze(1)).div_(num));
}

/// Of a number: a code is its bits in fp32.
void score_values(at::Tensor& logits_N1, const at::Tensor& codes_N, const at::Tensor& d_score_N,
                  LabelScores& scores) {
  const at::Tensor codes = codes_N.cpu();
  at::Tensor wanted = at::empty({codes.numel()}, at::kFloat);
  for (std::int64_t n = 0; n < codes.numel(); ++n)
    wanted.data_ptr<float>()[n] = value_of_code(codes.const_data_ptr<std::int64_t>()[n]);
  const at::Tensor off = logits_N1.squeeze(1).to(at::kFloat) - wanted.to(logits_N1.device());
  scores.log_prob_N.copy_(off.square().neg_());
  scores.is_first_N.fill_(false);
  if (d_score_N.defined()) logits_N1.copy_((off * d_score_N).mul_(-2).unsqueeze_(1));
}

/// Of rewards, whose loss is of two of them (train/step/objective.cpp): the number itself.
void score_rewards(at::Tensor& logits_N1, const at::Tensor& d_score_N, LabelScores& scores) {
  scores.log_prob_N.copy_(logits_N1.squeeze(1));
  scores.is_first_N.fill_(false);
  if (d_score_N.defined()) logits_N1.copy_(d_score_N.unsqueeze(1));
}

}  // namespace

at::Tensor Ops::logits(const at::Tensor& x_ND, int row) {
  const Projection head = head_of(row, {});
  const Weight weight = weights_.matrix(head.rows);
  // Of a few labels, whose numbers are read and compared: narrow ones would often be equal.
  const bool widens = outputs_.are_of_texts() && x_ND.scalar_type() != at::kFloat;
  at::Tensor logits = !head.adapted().empty() ? project(head, x_ND).y_NF.to(at::kFloat)
                      : widens
                          ? product(x_ND.to(at::kFloat), unpacked(weight).to(at::kFloat).t(), path_)
                          : matmul(x_ND, weight, path_).to(at::kFloat);
  const double cap = outputs_.softcap;
  return cap > 0 ? logits.div_(cap).tanh_().mul_(cap) : logits;
}

LabelScores Ops::label_scores(const at::Tensor& x_ND, const at::Tensor& labels_N, int row) {
  at::Tensor no_gradient;
  return pull_back_label_scores(x_ND, labels_N, row, at::Tensor(), no_gradient);
}

LabelScores Ops::pull_back_label_scores(const at::Tensor& x_ND, const at::Tensor& labels_N, int row,
                                        const at::Tensor& d_log_prob_N, at::Tensor& d_x_ND) {
  const at::NoGradGuard no_autograd;
  const bool has_gradient = d_log_prob_N.defined();
  core::check(labels_N.is_cpu(), "labels are on the host");
  // A prompt's tokens have neither score nor gradient: the head sees the others alone. The host
  // finds them, or a GPU would have to tell it how many there are.
  const at::Tensor labelled = labels_N.ge(0).nonzero().squeeze(1);
  if (labelled.numel() == labels_N.numel()) {
    if (has_gradient) d_x_ND = at::empty_like(x_ND);
    return score_chunks(x_ND, upload(labels_N, x_ND.device()), head_of(row, {}), d_log_prob_N,
                        d_x_ND);
  }
  const at::Tensor places = upload(labelled, x_ND.device());
  const at::Tensor x = x_ND.index_select(0, places);
  const at::Tensor d_x = has_gradient ? at::empty_like(x) : at::Tensor();
  const LabelScores scores = score_chunks(
      x, upload(labels_N.index_select(0, labelled), x_ND.device()), head_of(row, places),
      has_gradient ? d_log_prob_N.index_select(0, places) : at::Tensor(), d_x);
  if (has_gradient) d_x_ND = at::zeros_like(x_ND).index_copy_(0, places, d_x);
  return spread(scores, places, labels_N.numel());
}

void Ops::score_labels(int, at::Tensor& logits_NV, const at::Tensor& labels_N,
                       const at::Tensor& d_log_prob_N, LabelScores& scores) {
  if (outputs_.kind == HeadKind::labels)
    return score_flags(logits_NV, labels_N, d_log_prob_N, scores);
  if (outputs_.kind == HeadKind::value)
    return score_values(logits_NV, labels_N, d_log_prob_N, scores);
  if (outputs_.kind == HeadKind::reward) return score_rewards(logits_NV, d_log_prob_N, scores);
  model::score_labels(logits_NV, labels_N, d_log_prob_N, scores, path_);
}

Projection Ops::head_of(int row, const at::Tensor& places) {
  Projection head = Ops::projection({row, 1});
  if (head.dropout && places.defined())
    head.dropout->tokens_N = head.dropout->tokens_N.index_select(0, places);
  return head;
}

LabelScores Ops::score_chunks(const at::Tensor& x_ND, const at::Tensor& labels_N,
                              const Projection& head, const at::Tensor& d_log_prob_N,
                              const at::Tensor& d_x_ND) {
  const Weight weight = weights_.matrix(head.rows);
  const bool is_adapted = !head.adapted().empty();
  const std::int64_t num_tokens = x_ND.size(0);
  LabelScores all = empty_scores(num_tokens, x_ND);
  for (std::int64_t first = 0; first < num_tokens; first += head_chunk_tokens) {
    const std::int64_t count = std::min(head_chunk_tokens, num_tokens - first);
    const auto chunk = [&](const at::Tensor& of) { return of.narrow(0, first, count); };
    const at::Tensor x = chunk(x_ND);
    Projection own = head;
    if (own.dropout) own.dropout->tokens_N = chunk(own.dropout->tokens_N);
    Projected projected = is_adapted ? project(own, x) : Projected{matmul(x, weight, path_), {}};
    at::Tensor& logits = projected.y_NF;
    LabelScores scores = {chunk(all.log_prob_N), chunk(all.is_first_N)};
    const bool has_gradient = d_log_prob_N.defined();
    const double cap = outputs_.softcap;
    if (cap > 0) logits.div_(cap).tanh_().mul_(cap);
    const at::Tensor capped = cap > 0 && has_gradient ? logits.clone() : at::Tensor();
    score_labels(head.rows.first, logits, chunk(labels_N),
                 has_gradient ? chunk(d_log_prob_N) : at::Tensor(), scores);
    if (!has_gradient) continue;
    // d tanh = 1 - tanh^2.
    if (cap > 0) logits.addcmul_(logits, at::square(capped / cap), -1);
    // Logits now hold their gradient.
    at::Tensor d_x = chunk(d_x_ND);
    if (is_adapted) {
      d_x.copy_(project_backward(own, logits, x, projected.kept));
      continue;
    }
    add_product(weights_.gradient(head.rows), logits, x, path_);
    matmul_backward_out(d_x, logits, weight, path_);
  }
  return all;
}

}  // namespace finetune::model
