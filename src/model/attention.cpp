// SPDX-License-Identifier: Apache-2.0
// The attention part of activations.hpp: libtorch's fused kernels on views into a fused qkv.

#include "kernels/composed.hpp"
#include "model/activations.hpp"

#include <ATen/SDPBackend.h>

#include <limits>
#include <tuple>

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

namespace {

enum class Kernel : std::int64_t { composed, host, flash, efficient, cudnn };

bool has_groups(const QkvViews& views) {
  return views.q.size(1) != views.k.size(1);
}

/// What libtorch's own scaled_dot_product_attention would run on a GPU.
Kernel choose_on_gpu(const QkvViews& views, bool is_causal) {
  const auto choice = [&](const at::Tensor& k, const at::Tensor& v, bool enable_gqa) {
    return static_cast<at::SDPBackend>(
        at::_fused_sdp_choice(views.q, k, v, {}, 0.0, is_causal, {}, enable_gqa));
  };
  at::SDPBackend backend = choice(views.k, views.v, has_groups(views));
  // The efficient kernel has no groups: it gets every key head as often as query heads share it.
  if (backend == at::SDPBackend::math && has_groups(views)) {
    const at::IntArrayRef shape = views.q.sizes();
    backend =
        choice(views.k.narrow(1, 0, 1).expand(shape), views.v.narrow(1, 0, 1).expand(shape), false);
    if (backend != at::SDPBackend::efficient_attention) return Kernel::composed;
  }
  switch (backend) {
    case at::SDPBackend::flash_attention:
      // Heads of other sizes would have to be padded first.
      return views.q.size(3) % 8 == 0 ? Kernel::flash : Kernel::composed;
    case at::SDPBackend::efficient_attention:
      return Kernel::efficient;
    case at::SDPBackend::cudnn_attention:
      return Kernel::cudnn;
    default:
      return Kernel::composed;
  }
}

Kernel choose(const QkvViews& views, bool is_causal, Path path) {
  if (path == Path::composed) return Kernel::composed;
  if (views.q.is_cpu()) return Kernel::host;
  return views.q.is_cuda() ? choose_on_gpu(views, is_causal) : Kernel::composed;
}

/// [B, Hkv, L, K] -> [B, H, L, K]: each key head once for every query head that shares it.
at::Tensor repeat_heads(const at::Tensor& k, const at::Tensor& q) {
  return k.size(1) == q.size(1) ? k : k.repeat_interleave(q.size(1) / k.size(1), 1);
}

/// The gradient of what repeat_heads read.
at::Tensor add_up_heads(const at::Tensor& d, const at::Tensor& k) {
  return d.size(1) == k.size(1) ? d : d.unflatten(1, {k.size(1), d.size(1) / k.size(1)}).sum(2);
}

/// d_out [B, H, L, K] -> gradients of q, k, v, shaped like them.
std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients(const at::Tensor& d_out,
                                                         const QkvViews& views, const Attended& a) {
  const auto& [q, k, v] = views;
  const std::int64_t length = q.size(2);
  const at::Tensor none;  // the sequences of a batch have one length, and there is no bias
  switch (static_cast<Kernel>(a.kernel)) {
    case Kernel::host:
      return at::_scaled_dot_product_flash_attention_for_cpu_backward(d_out, q, k, v, a.out,
                                                                      a.logsumexp, 0.0, true);
    case Kernel::flash:
      return at::_scaled_dot_product_flash_attention_backward(d_out, q, k, v, a.out, a.logsumexp,
                                                              none, none, length, length, 0.0, true,
                                                              a.philox_seed, a.philox_offset);
    case Kernel::cudnn:
      return at::_scaled_dot_product_cudnn_attention_backward(
          d_out, q, k, v, a.out, a.logsumexp, a.philox_seed, a.philox_offset, none, none, none,
          length, length, 0.0, true);
    case Kernel::efficient: {
      const auto [d_q, d_k, d_v, d_bias] = at::_scaled_dot_product_efficient_attention_backward(
          d_out, q, repeat_heads(k, q), repeat_heads(v, q), none, a.out, a.logsumexp, a.philox_seed,
          a.philox_offset, 0.0, {true, true, true, false}, true);
      return {d_q, add_up_heads(d_k, k), add_up_heads(d_v, v)};
    }
    default: {
      const auto d = kernels::composed::attention_backward(d_out, q, k, v, {a.out, a.logsumexp},
                                                           /*is_causal=*/true);
      return {d.q, d.k, d.v};
    }
  }
}

}  // namespace

Attended attend(const QkvViews& views, Causal causal, Path path) {
  const auto& [q, k, v] = views;
  const bool is_causal = causal == Causal::yes;
  const Kernel kernel = choose(views, is_causal, path);
  Attended a;
  a.kernel = static_cast<std::int64_t>(kernel);
  switch (kernel) {
    case Kernel::host:
      std::tie(a.out, a.logsumexp) =
          at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal);
      return a;
    case Kernel::flash: {
      const auto result = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal);
      a.out = std::get<0>(result);
      a.logsumexp = std::get<1>(result);
      a.philox_seed = std::get<6>(result);
      a.philox_offset = std::get<7>(result);
      return a;
    }
    case Kernel::cudnn: {
      const auto result = at::_scaled_dot_product_cudnn_attention(
          q, k, v, {}, /*compute_log_sumexp=*/true, 0.0, is_causal);
      a.out = std::get<0>(result);
      a.logsumexp = std::get<1>(result);
      a.philox_seed = std::get<6>(result);
      a.philox_offset = std::get<7>(result);
      return a;
    }
    case Kernel::efficient:
      std::tie(a.out, a.logsumexp, a.philox_seed, a.philox_offset) =
          at::_scaled_dot_product_efficient_attention(q, repeat_heads(k, q), repeat_heads(v, q), {},
                                                      /*compute_log_sumexp=*/true, 0.0, is_causal);
      return a;
    default: {
      const auto result = kernels::composed::attention(q, k, v, is_causal);
      a.out = result.out;
      a.logsumexp = result.logsumexp;
      return a;
    }
  }
}

at::Tensor attend_backward(const at::Tensor& d_out, const QkvViews& views,
                           const Attended& attended) {
  const at::Tensor& out = attended.out;
  const at::Tensor d_heads =
      d_out.view({out.size(0), out.size(2), out.size(1), out.size(3)}).transpose(1, 2);
  auto [dq, dk, dv] = gradients(d_heads, views, attended);
  return at::cat({merge_heads(dq), merge_heads(dk), merge_heads(dv)}, 1);
}

namespace {

/// Attention of `length` new tokens to all `total`, where each sees those before it and itself.
at::Tensor attend_to_earlier(const QkvViews& views, std::int64_t length, std::int64_t total,
                             Path path) {
  const bool on_cpu = path == Path::kernels && views.q.is_cpu();
  at::Tensor mask = at::zeros({length, total}, views.q.options());
  mask.masked_fill_(
      at::ones({length, total}, views.q.options().dtype(at::kBool)).triu(total - length + 1),
      -std::numeric_limits<double>::infinity());
  if (on_cpu) {
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(views.q, views.k, views.v,
                                                                       0.0, false, mask));
  }
  return at::scaled_dot_product_attention(views.q, views.k, views.v, mask, 0.0, false, {},
                                          has_groups(views));
}

}  // namespace

at::Tensor attend_cached(const at::Tensor& qkv, const AttentionShape& shape,
                         const Sequence& sequence, std::int64_t i_layer, Path path) {
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
  if (total == sequence.length) return merge_heads(attend(views, Causal::yes, path).out);
  if (sequence.length == 1) return merge_heads(attend(views, Causal::no, path).out);
  return merge_heads(attend_to_earlier(views, sequence.length, total, path));
}

}  // namespace finetune::model
