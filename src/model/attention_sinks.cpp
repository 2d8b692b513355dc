// SPDX-License-Identifier: Apache-2.0
#include "model/attention_sinks.hpp"

#include <algorithm>

#include "model/gradients.hpp"

namespace finetune::model {
namespace {

/// Calls f(first, count) for runs of the tokens of x [B, H, L, K]: what is written in fp32 next to
/// them stays small.
template <typename F>
void for_each_run_of_tokens(const at::Tensor& x_BHLK, const F& f) {
  const std::int64_t length = x_BHLK.size(2);
  const std::int64_t step =
      std::max<std::int64_t>(1, sink_tokens_at_once / std::max<std::int64_t>(1, x_BHLK.size(0)));
  for (std::int64_t first = 0; first < length; first += step)
    f(first, std::min(step, length - first));
}

/// [1, H, 1] of [H].
at::Tensor row_of_heads(const at::Tensor& x_H) {
  return x_H.view({1, -1, 1});
}

}  // namespace

at::Tensor Sinks::logits_H() const {
  return weights_->weight({row_, 1}).to(at::kFloat);
}

void Sinks::add_to(const at::Tensor& out_BHLK, const at::Tensor& logsumexp_BHL) const {
  if (!exist()) return;
  at::Tensor logsumexp = logsumexp_BHL;
  const at::Tensor sum = at::logaddexp(logsumexp, row_of_heads(logits_H()));
  const at::Tensor share = (logsumexp - sum).exp_().unsqueeze(3);
  logsumexp.copy_(sum);
  for_each_run_of_tokens(out_BHLK, [&](std::int64_t first, std::int64_t count) {
    out_BHLK.narrow(2, first, count).mul_(share.narrow(2, first, count));
  });
}

Sinks::Gradient::Gradient(const Sinks& sinks)
    : sinks_(sinks),
      is_wanted_(sinks.exist() && !sinks.weights_->trained({sinks.row_, 1}).empty()) {}

/// The softmax gives every logit its probability times what its value's gradient is above the mean;
/// a sink has no value, and the mean is d_out . out.
void Sinks::Gradient::add(const at::Tensor& d_out_BHLK, const at::Tensor& out_BHLK,
                          const at::Tensor& logsumexp_BHL) {
  if (!is_wanted_) return;
  const at::Tensor sinks_H = sinks_.logits_H();
  if (!sum_H_.defined()) sum_H_ = at::zeros_like(sinks_H);
  const at::Tensor probability = (row_of_heads(sinks_H) - logsumexp_BHL).exp_();
  for_each_run_of_tokens(out_BHLK, [&](std::int64_t first, std::int64_t count) {
    const auto run = [&](const at::Tensor& x) { return x.narrow(2, first, count); };
    const at::Tensor mean = (run(d_out_BHLK).to(at::kFloat) * run(out_BHLK)).sum(3);
    sum_H_.sub_(mean.mul_(run(probability)).sum(at::IntArrayRef({0, 2})));
  });
}

void Sinks::Gradient::finish() const {
  if (!is_wanted_) return;
  const at::Tensor sum_H = sum_H_.defined() ? sum_H_ : at::zeros_like(sinks_.logits_H());
  add_vector(sinks_.weights_->gradient({sinks_.row_, 1}), sum_H);
}

}  // namespace finetune::model
