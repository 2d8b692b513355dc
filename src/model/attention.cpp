// SPDX-License-Identifier: Apache-2.0
// The attention part of activations.hpp: libtorch's fused kernels on views into a fused qkv.

#include <limits>

#include "model/activations.hpp"

namespace finetune::model {

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

}  // namespace finetune::model
