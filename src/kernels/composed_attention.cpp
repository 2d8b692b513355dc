// SPDX-License-Identifier: Apache-2.0
// Attention of composed.hpp.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "kernels/composed.hpp"

namespace finetune::kernels::composed {
namespace {

/// [B, H, L, X] -> [B, Hkv, H / Hkv, L, X] fp32: the query heads of a group beside each other.
at::Tensor grouped(const at::Tensor& x, const at::Tensor& k) {
  return x.unflatten(1, {k.size(1), x.size(1) / k.size(1)}).to(at::kFloat);
}

/// [B, Hkv, M, K] -> [B, Hkv, 1, M, K] fp32.
at::Tensor shared(const at::Tensor& k) {
  return k.unsqueeze(2).to(at::kFloat);
}

double scale_of(const at::Tensor& q) {
  return 1.0 / std::sqrt(static_cast<double>(q.size(-1)));
}

/// [B, Hkv, H / Hkv, L, M], of all keys.
at::Tensor all_scores(const at::Tensor& q, const at::Tensor& k, const Visible& visible) {
  at::Tensor scores = at::matmul(grouped(q, k), shared(k).transpose(-2, -1)).mul_(scale_of(q));
  const double cap = visible.softcap;
  return cap > 0 ? scores.div_(cap).tanh_().mul_(cap) : scores;
}

/// The same; -infinity where a query does not see a key.
at::Tensor scores(const at::Tensor& q, const at::Tensor& k, const Visible& visible) {
  at::Tensor scores = all_scores(q, k, visible);
  if (visible.mask.defined()) scores.add_(visible.mask);
  if (visible.is_causal) {
    const at::Tensor later = at::ones({q.size(2), k.size(2)}, q.options().dtype(at::kBool)).triu(1);
    scores.masked_fill_(later, -std::numeric_limits<float>::infinity());
  }
  return scores;
}

}  // namespace

Attention attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const Visible& visible) {
  const at::Tensor s = scores(q, k, visible);
  const at::Tensor logsumexp = s.logsumexp(-1, /*keepdim=*/true);
  const at::Tensor out = at::matmul((s - logsumexp).exp_(), shared(v));
  return {out.flatten(1, 2).to(q.scalar_type()), logsumexp.squeeze(-1).flatten(1, 2)};
}

AttentionGradients attention_backward(const at::Tensor& d_out, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v,
                                      const Attention& attention, const Visible& visible) {
  const at::Tensor logsumexp = grouped(attention.logsumexp.unsqueeze(-1), k);
  const at::Tensor p = (scores(q, k, visible) - logsumexp).exp_();
  const at::Tensor d = grouped(d_out, k);
  const at::Tensor d_p = at::matmul(d, shared(v).transpose(-2, -1));
  // The softmax takes away the mean of d_p; that mean is d_out . out.
  const at::Tensor mean = (d * grouped(attention.out, k)).sum(-1, /*keepdim=*/true);
  const at::Tensor d_scores = p * (d_p - mean) * scale_of(q);
  // d tanh = 1 - tanh^2.
  if (visible.softcap > 0)
    d_scores.addcmul_(d_scores, all_scores(q, k, visible).div_(visible.softcap).square_(), -1);
  const at::Tensor d_q = at::matmul(d_scores, shared(k)).flatten(1, 2);
  const at::Tensor d_k = at::matmul(d_scores.transpose(-2, -1), grouped(q, k)).sum(2);
  const at::Tensor d_v = at::matmul(p.transpose(-2, -1), d).sum(2);
  return {d_q.to(q.scalar_type()), d_k.to(k.scalar_type()), d_v.to(v.scalar_type())};
}

}  // namespace finetune::kernels::composed
