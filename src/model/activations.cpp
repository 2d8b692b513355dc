// SPDX-License-Identifier: Apache-2.0
#include "model/activations.hpp"

#include <cmath>

namespace finetune::model {

std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const at::Tensor& x_ND,
                                                    const at::Tensor& weight_D, double eps) {
  const at::Tensor x = x_ND.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(x.square().mean(-1) + eps);
  return {(x * rstd.unsqueeze(-1)).to(x_ND.scalar_type()) * weight_D, rstd};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> add_rms_norm_forward(const at::Tensor& x_ND,
                                                                    const at::Tensor& residual_ND,
                                                                    const at::Tensor& weight_D,
                                                                    double eps) {
  at::Tensor h = x_ND + residual_ND;
  auto [y, rstd] = rms_norm_forward(h, weight_D, eps);
  return {h, y, rstd};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& dy_ND,
                                                     const at::Tensor& x_ND,
                                                     const at::Tensor& weight_D,
                                                     const at::Tensor& rstd_N,
                                                     const at::Tensor& d_residual_ND) {
  const at::Tensor rstd = rstd_N.unsqueeze(-1);
  const at::Tensor normed = x_ND.to(at::kFloat) * rstd;
  const at::Tensor dy = dy_ND.to(at::kFloat);
  const at::Tensor dw = (dy * normed).sum(0);
  const at::Tensor dn = dy * weight_D.to(at::kFloat);
  at::Tensor dx = rstd * (dn - normed * (dn * normed).mean(-1, true));
  if (d_residual_ND.defined()) dx = dx + d_residual_ND.to(at::kFloat);
  return {dx.to(x_ND.scalar_type()), dw};
}

at::Tensor swiglu_forward(const at::Tensor& gate_up) {
  const auto parts = gate_up.chunk(2, -1);
  return (at::silu(parts[0].to(at::kFloat)) * parts[1].to(at::kFloat)).to(gate_up.scalar_type());
}

at::Tensor swiglu_backward(const at::Tensor& dy_NF, const at::Tensor& gate_up) {
  const auto parts = gate_up.chunk(2, -1);
  const at::Tensor gate = parts[0].to(at::kFloat);
  const at::Tensor up = parts[1].to(at::kFloat);
  const at::Tensor dy = dy_NF.to(at::kFloat);
  const at::Tensor sigmoid = at::sigmoid(gate);
  const at::Tensor d_gate = dy * up * sigmoid * (1 + gate * (1 - sigmoid));
  return at::cat({d_gate, dy * gate * sigmoid}, -1).to(gate_up.scalar_type());
}

void rotate(at::Tensor& qkv, const AttentionShape& shape, const Sequence& sequence,
            RotateBy direction) {
  const at::NoGradGuard no_autograd;
  const std::int64_t heads = shape.num_heads + shape.num_kv_heads;
  const std::int64_t half = shape.head_size / 2;
  at::Tensor x =
      qkv.narrow(1, 0, heads * shape.head_size).view({qkv.size(0), heads, shape.head_size});
  const at::Tensor cos = sequence.cos.index_select(0, sequence.positions).unsqueeze(1);
  at::Tensor sin = sequence.sin.index_select(0, sequence.positions).unsqueeze(1);
  if (direction == RotateBy::minus_angle) sin = -sin;
  const at::Tensor low = x.narrow(2, 0, half).to(at::kFloat, false, true);
  const at::Tensor high = x.narrow(2, half, half).to(at::kFloat, false, true);
  x.narrow(2, 0, half).copy_(low * cos - high * sin);
  x.narrow(2, half, half).copy_(high * cos + low * sin);
}

QkvViews split_heads(const at::Tensor& qkv, const AttentionShape& shape, std::int64_t batch,
                     std::int64_t length) {
  const auto part = [&](std::int64_t first_head, std::int64_t heads) {
    return qkv.narrow(1, first_head * shape.head_size, heads * shape.head_size)
        .unflatten(0, {batch, length})
        .unflatten(2, {heads, shape.head_size})
        .transpose(1, 2);
  };
  return {part(0, shape.num_heads), part(shape.num_heads, shape.num_kv_heads),
          part(shape.num_heads + shape.num_kv_heads, shape.num_kv_heads)};
}

at::Tensor merge_heads(const at::Tensor& out_BHLK) {
  const at::Tensor out = out_BHLK.transpose(1, 2);
  return out.reshape({out.size(0) * out.size(1), out.size(2) * out.size(3)});
}

std::tuple<at::Tensor, at::Tensor> attend(const QkvViews& views, Causal causal) {
  return at::_scaled_dot_product_flash_attention_for_cpu(views.q, views.k, views.v, 0.0,
                                                         causal == Causal::yes);
}

at::Tensor attend_backward(const at::Tensor& d_out, const QkvViews& views, const at::Tensor& out,
                           const at::Tensor& logsumexp, const AttentionShape& shape) {
  const std::int64_t batch = out.size(0);
  const std::int64_t length = out.size(2);
  const at::Tensor d_heads =
      d_out.view({batch, length, shape.num_heads, shape.head_size}).transpose(1, 2);
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      d_heads, views.q, views.k, views.v, out, logsumexp, 0.0, true);
  return at::cat({merge_heads(dq), merge_heads(dk), merge_heads(dv)}, 1);
}

at::Tensor attend_cached(const at::Tensor& qkv, const AttentionShape& shape,
                         const Sequence& sequence, std::int64_t i_layer) {
  const std::int64_t q_size = shape.num_heads * shape.head_size;
  const at::Tensor q = qkv.narrow(1, 0, q_size);
  const at::Tensor kv = qkv.narrow(1, q_size, qkv.size(1) - q_size);
  at::Tensor& cached = sequence.cache->layers.at(static_cast<std::size_t>(i_layer));
  cached = cached.defined() ? at::cat({cached, kv}, 0) : kv.clone();
  const std::int64_t total = cached.size(0);
  const auto heads = [&](const at::Tensor& x) {
    return x.unflatten(1, {-1, shape.head_size}).transpose(0, 1).unsqueeze(0);
  };
  const std::int64_t kv_size = shape.num_kv_heads * shape.head_size;
  const QkvViews views{heads(q), heads(cached.narrow(1, 0, kv_size)),
                       heads(cached.narrow(1, kv_size, kv_size))};
  // New tokens of a prompt see each other causally; a single new token sees everything.
  if (total == sequence.length) return merge_heads(std::get<0>(attend(views, Causal::yes)));
  if (sequence.length == 1) return merge_heads(std::get<0>(attend(views, Causal::no)));
  at::Tensor mask = at::zeros({sequence.length, total}, views.q.options());
  mask.masked_fill_(at::ones({sequence.length, total}, at::kBool).triu(total - sequence.length + 1),
                    -std::numeric_limits<double>::infinity());
  return merge_heads(std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      views.q, views.k, views.v, 0.0, false, mask)));
}

void embedding_gradient(const at::Tensor& ids_N, const at::Tensor& d_x_ND,
                        const at::Tensor& gradient_VD, bool accumulate) {
  at::Tensor gradient = gradient_VD;
  if (!accumulate) gradient.zero_();
  // Several tokens may share a row: their sum is made in fp32 and rounded once.
  if (gradient.scalar_type() == at::kFloat) {
    gradient.index_add_(0, ids_N, d_x_ND.to(at::kFloat));
    return;
  }
  at::Tensor sum = gradient.to(at::kFloat);
  sum.index_add_(0, ids_N, d_x_ND.to(at::kFloat));
  gradient.copy_(sum);
}

ChunkLoss cross_entropy(at::Tensor& logits, const at::Tensor& labels, at::Tensor& correct,
                        std::optional<double> scale) {
  const at::Tensor trained = labels.ge(0);
  const at::Tensor target = labels.clamp_min(0).unsqueeze(1);
  const at::Tensor wide = logits.to(at::kFloat);
  const at::Tensor log_p = at::log_softmax(wide, 1);
  const at::Tensor row_loss = -log_p.gather(1, target).squeeze(1) * trained;
  correct.copy_(wide.argmax(1).eq(labels).logical_or(trained.logical_not()));
  if (scale) {
    at::Tensor gradient = log_p.exp();
    gradient.scatter_add_(1, target, at::full_like(target, -1, gradient.options()));
    logits.copy_(gradient * (trained.to(at::kFloat) * *scale).unsqueeze(1));
  }
  return {row_loss.to(at::kDouble).sum().item<double>(), trained.sum().item<std::int64_t>()};
}

}  // namespace finetune::model
