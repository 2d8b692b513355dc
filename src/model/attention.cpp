// SPDX-License-Identifier: Apache-2.0
// The attention part of activations.hpp: libtorch's fused kernels, or ours in tiles, on views into
// a fused qkv.

#include "kernels/attention.hpp"
#include "kernels/composed.hpp"
#include "model/activations.hpp"

#include <ATen/SDPBackend.h>

#include <optional>
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

enum class Kernel : std::int64_t { composed, host, tiles, flash, efficient, cudnn };

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

kernels::CausalShape causal_shape(const QkvViews& views) {
  return {views.q.size(0), views.q.size(2), views.q.size(1), views.k.size(1), views.q.size(3)};
}

bool can_use_tiles(const QkvViews& views, const Visible& visible) {
  return views.q.scalar_type() == at::kBFloat16 && visible.is_causal && !visible.mask.defined() &&
         views.q.size(2) == views.k.size(2) && kernels::has_causal_attention(causal_shape(views));
}

/// A view [B, H, L, K] as our kernels take it.
template <typename T>
kernels::Heads<T> heads_of(const at::Tensor& x_BHLK) {
  return {static_cast<T*>(x_BHLK.data_ptr()), x_BHLK.stride(0), x_BHLK.stride(1), x_BHLK.stride(2)};
}

/// Memory for [B, H, L, K] in which the heads of a token are neighbours.
at::Tensor empty_heads(const at::Tensor& like_BHLK) {
  return at::empty({like_BHLK.size(0), like_BHLK.size(2), like_BHLK.size(1), like_BHLK.size(3)},
                   like_BHLK.options())
      .transpose(1, 2);
}

using kernels::bf16;

Attended attend_in_tiles(const QkvViews& views) {
  Attended a;
  a.out = empty_heads(views.q);
  a.logsumexp = at::empty({views.q.size(0), views.q.size(1), views.q.size(2)},
                          views.q.options().dtype(at::kFloat));
  kernels::causal_attention({.shape = causal_shape(views),
                             .q = heads_of<const bf16>(views.q),
                             .k = heads_of<const bf16>(views.k),
                             .v = heads_of<const bf16>(views.v),
                             .out = heads_of<bf16>(a.out),
                             .logsumexp = a.logsumexp.data_ptr<float>()});
  return a;
}

QkvViews attend_in_tiles_backward(const at::Tensor& d_out, const QkvViews& views,
                                  const Attended& a) {
  QkvViews d{empty_heads(views.q), empty_heads(views.k), empty_heads(views.v)};
  kernels::causal_attention_backward({.shape = causal_shape(views),
                                      .q = heads_of<const bf16>(views.q),
                                      .k = heads_of<const bf16>(views.k),
                                      .v = heads_of<const bf16>(views.v),
                                      .out = heads_of<const bf16>(a.out),
                                      .d_out = heads_of<const bf16>(d_out),
                                      .logsumexp = a.logsumexp.data_ptr<float>(),
                                      .d_q = heads_of<bf16>(d.q),
                                      .d_k = heads_of<bf16>(d.k),
                                      .d_v = heads_of<bf16>(d.v)});
  return d;
}

Kernel choose(const QkvViews& views, const Visible& visible, Path path) {
  if (path == Path::composed) return Kernel::composed;
  if (views.q.is_cpu()) return can_use_tiles(views, visible) ? Kernel::tiles : Kernel::host;
  // The fused ones want masks aligned in ways of their own.
  if (visible.mask.defined()) return Kernel::composed;
  return views.q.is_cuda() ? choose_on_gpu(views, visible.is_causal) : Kernel::composed;
}

/// [B, Hkv, L, K] -> [B, H, L, K]: each key head once for every query head that shares it.
at::Tensor repeat_heads(const at::Tensor& k, const at::Tensor& q) {
  return k.size(1) == q.size(1) ? k : k.repeat_interleave(q.size(1) / k.size(1), 1);
}

/// The mask as libtorch's kernel for the CPU takes it.
std::optional<at::Tensor> host_mask(const Visible& visible, const at::Tensor& q) {
  if (!visible.mask.defined()) return std::nullopt;
  return visible.mask.to(q.scalar_type());
}

/// The gradient of what repeat_heads read.
at::Tensor add_up_heads(const at::Tensor& d, const at::Tensor& k) {
  return d.size(1) == k.size(1) ? d : d.unflatten(1, {k.size(1), d.size(1) / k.size(1)}).sum(2);
}

}  // namespace

Attended attend(const QkvViews& views, const Visible& visible, Path path) {
  const auto& [q, k, v] = views;
  const bool is_causal = visible.is_causal;
  const Kernel kernel = choose(views, visible, path);
  Attended a;
  a.kernel = static_cast<std::int64_t>(kernel);
  switch (kernel) {
    case Kernel::tiles:
      a = attend_in_tiles(views);
      a.kernel = static_cast<std::int64_t>(kernel);
      return a;
    case Kernel::host:
      std::tie(a.out, a.logsumexp) = at::_scaled_dot_product_flash_attention_for_cpu(
          q, k, v, 0.0, is_causal, host_mask(visible, q));
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
      const auto result = kernels::composed::attention(q, k, v, visible);
      a.out = result.out;
      a.logsumexp = result.logsumexp;
      return a;
    }
  }
}

QkvViews attend_backward(const at::Tensor& d_out, const QkvViews& views, const Attended& a,
                         const Visible& visible) {
  const auto& [q, k, v] = views;
  const std::int64_t length = q.size(2);
  const bool is_causal = visible.is_causal;
  const at::Tensor none;  // the sequences of a batch have one length, and there is no bias
  switch (static_cast<Kernel>(a.kernel)) {
    case Kernel::tiles:
      return attend_in_tiles_backward(d_out, views, a);
    case Kernel::host: {
      const auto [d_q, d_k, d_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          d_out, q, k, v, a.out, a.logsumexp, 0.0, is_causal, host_mask(visible, q));
      return {d_q, d_k, d_v};
    }
    case Kernel::flash: {
      const auto [d_q, d_k, d_v] = at::_scaled_dot_product_flash_attention_backward(
          d_out, q, k, v, a.out, a.logsumexp, none, none, length, length, 0.0, is_causal,
          a.philox_seed, a.philox_offset);
      return {d_q, d_k, d_v};
    }
    case Kernel::cudnn: {
      const auto [d_q, d_k, d_v] = at::_scaled_dot_product_cudnn_attention_backward(
          d_out, q, k, v, a.out, a.logsumexp, a.philox_seed, a.philox_offset, none, none, none,
          length, length, 0.0, is_causal);
      return {d_q, d_k, d_v};
    }
    case Kernel::efficient: {
      const auto [d_q, d_k, d_v, d_bias] = at::_scaled_dot_product_efficient_attention_backward(
          d_out, q, repeat_heads(k, q), repeat_heads(v, q), none, a.out, a.logsumexp, a.philox_seed,
          a.philox_offset, 0.0, {true, true, true, false}, is_causal);
      return {d_q, add_up_heads(d_k, k), add_up_heads(d_v, v)};
    }
    default: {
      const auto d =
          kernels::composed::attention_backward(d_out, q, k, v, {a.out, a.logsumexp}, visible);
      return {d.q, d.k, d.v};
    }
  }
}

}  // namespace finetune::model
