// SPDX-License-Identifier: Apache-2.0
// The attention part of activations.hpp: libtorch's fused kernels, or ours, on views into
// a fused qkv.

#include "kernels/attention.hpp"
#include "kernels/composed.hpp"
#include "model/activations.hpp"
#include "model/products.hpp"

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

enum class Kernel : std::int64_t {
  composed,
  host,          ///< libtorch's for the CPU
  host_in_fp32,  ///< the same, on copies
  tiles,
  widened
};

/// Every query every key.
bool sees_all(const Visible& visible) {
  return !visible.is_causal && !visible.mask.defined() && visible.window == 0;
}

kernels::CausalShape causal_shape(const QkvViews& views, const Visible& visible) {
  return {views.q.size(0), views.q.size(2), views.q.size(1), views.k.size(1),
          views.q.size(3), views.k.size(2), visible.window,  !sees_all(visible)};
}

bool can_use_tiles(const QkvViews& views, const Visible& visible) {
  return views.q.scalar_type() == at::kBFloat16 && visible.is_causal && !visible.mask.defined() &&
         views.q.size(2) == views.k.size(2) &&
         kernels::has_causal_attention(causal_shape(views, visible));
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

/// Elements of a head's vector as neighbours, as our kernels take them.
at::Tensor with_neighbours(const at::Tensor& x_BHLK) {
  return x_BHLK.stride(3) == 1 ? x_BHLK : x_BHLK.contiguous();
}

using kernels::bf16;

template <typename T>
kernels::CausalAttention<T> forward_of(const QkvViews& views, const Visible& visible,
                                       const Attended& a) {
  return {.shape = causal_shape(views, visible),
          .q = heads_of<const T>(views.q),
          .k = heads_of<const T>(views.k),
          .v = heads_of<const T>(views.v),
          .out = heads_of<T>(a.out),
          .logsumexp = a.logsumexp.data_ptr<float>()};
}

template <typename T>
kernels::CausalAttentionBackward<T> backward_of(const at::Tensor& d_out, const QkvViews& views,
                                                const Visible& visible, const Attended& a,
                                                const QkvViews& d) {
  return {.shape = causal_shape(views, visible),
          .q = heads_of<const T>(views.q),
          .k = heads_of<const T>(views.k),
          .v = heads_of<const T>(views.v),
          .out = heads_of<const T>(a.out),
          .d_out = heads_of<const T>(d_out),
          .logsumexp = a.logsumexp.const_data_ptr<float>(),
          .d_q = heads_of<T>(d.q),
          .d_k = heads_of<T>(d.k),
          .d_v = heads_of<T>(d.v)};
}

/// Calls f.operator()<T>() with our element type of a tensor's.
template <typename F>
void with_element(const at::Tensor& x, const F& f) {
  if (x.scalar_type() == at::kFloat) {
    f.template operator()<float>();
  } else if (x.scalar_type() == at::kHalf) {
    f.template operator()<kernels::f16>();
  } else {
    f.template operator()<bf16>();
  }
}

Attended attend_by_ours(const QkvViews& views, const Visible& visible, Kernel kernel) {
  Attended a;
  a.out = empty_heads(views.q);
  a.logsumexp = at::empty({views.q.size(0), views.q.size(1), views.q.size(2)},
                          views.q.options().dtype(at::kFloat));
  a.kernel = static_cast<std::int64_t>(kernel);
  if (kernel == Kernel::tiles) {
    kernels::causal_attention(forward_of<bf16>(views, visible, a));
  } else {
    with_element(views.q, [&]<typename T>() {
      kernels::widened_attention(forward_of<T>(views, visible, a));
    });
  }
  return a;
}

QkvViews attend_by_ours_backward(const at::Tensor& d_out, const QkvViews& views,
                                 const Visible& visible, const Attended& attended, Kernel kernel) {
  const at::Tensor d_heads = with_neighbours(d_out);
  Attended a = attended;
  a.logsumexp = attended.logsumexp.contiguous();
  const QkvViews d{empty_heads(views.q), empty_heads(views.k), empty_heads(views.v)};
  if (kernel == Kernel::tiles) {
    kernels::causal_attention_backward(backward_of<bf16>(d_heads, views, visible, a, d));
  } else {
    with_element(views.q, [&]<typename T>() {
      kernels::widened_attention_backward(backward_of<T>(d_heads, views, visible, a, d));
    });
  }
  return d;
}

/// On the CPU. libtorch's kernel runs at half of the rate of ours in fp32, and in narrow floats at
/// a hundredth where the processor has no instructions for them.
Kernel choose_on_host(const QkvViews& views, const Visible& visible, Path path) {
  const bool is_ours =
      visible.window > 0 ||
      (visible.is_causal && !visible.mask.defined() && views.q.size(2) == views.k.size(2)) ||
      // A single query would fill a fraction of a tile.
      (sees_all(visible) && views.q.size(2) > 1);
  const bool is_wide = views.q.scalar_type() == at::kFloat || is_widened(views.q, path);
  if (is_wide && is_ours && kernels::has_widened_attention(causal_shape(views, visible)))
    return Kernel::widened;
  if (is_widened(views.q, path)) return Kernel::host_in_fp32;
  return can_use_tiles(views, visible) ? Kernel::tiles : Kernel::host;
}

QkvViews to_dtype(const QkvViews& views, at::ScalarType dtype) {
  return {views.q.to(dtype), views.k.to(dtype), views.v.to(dtype)};
}

Kernel choose(const QkvViews& views, const Visible& visible, Path path) {
  if (path == Path::composed || !views.q.is_cpu() || visible.softcap > 0) return Kernel::composed;
  return choose_on_host(views, visible, path);
}

/// The mask as libtorch's kernel for the CPU takes it.
std::optional<at::Tensor> host_mask(const Visible& visible, const at::Tensor& q) {
  if (!visible.mask.defined()) return std::nullopt;
  return visible.mask.to(q.scalar_type());
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
    case Kernel::widened:
      return attend_by_ours(views, visible, kernel);
    case Kernel::host_in_fp32: {
      const QkvViews wide = to_dtype(views, at::kFloat);
      std::tie(a.out, a.logsumexp) = at::_scaled_dot_product_flash_attention_for_cpu(
          wide.q, wide.k, wide.v, 0.0, is_causal, host_mask(visible, wide.q));
      a.out = a.out.to(q.scalar_type());
      return a;
    }
    case Kernel::host:
      std::tie(a.out, a.logsumexp) = at::_scaled_dot_product_flash_attention_for_cpu(
          q, k, v, 0.0, is_causal, host_mask(visible, q));
      return a;
    default: {
      const auto result = kernels::composed::attention(q, k, v, visible);
      a.out = result.out;
      a.logsumexp = result.logsumexp;
      return a;
    }
  }
}

std::int64_t kernel_for(const QkvViews& views, const Visible& visible, Path path) {
  return static_cast<std::int64_t>(choose(views, visible, path));
}

QkvViews attend_backward(const at::Tensor& d_out, const QkvViews& views, const Attended& a,
                         const Visible& visible) {
  const auto& [q, k, v] = views;
  const bool is_causal = visible.is_causal;
  switch (static_cast<Kernel>(a.kernel)) {
    case Kernel::tiles:
    case Kernel::widened:
      return attend_by_ours_backward(d_out, views, visible, a, static_cast<Kernel>(a.kernel));
    case Kernel::host_in_fp32: {
      Attended in_fp32 = a;
      in_fp32.out = a.out.to(at::kFloat);
      in_fp32.kernel = static_cast<std::int64_t>(Kernel::host);
      const QkvViews d =
          attend_backward(d_out.to(at::kFloat), to_dtype(views, at::kFloat), in_fp32, visible);
      return to_dtype(d, q.scalar_type());
    }
    case Kernel::host: {
      const auto [d_q, d_k, d_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          d_out, q, k, v, a.out, a.logsumexp, 0.0, is_causal, host_mask(visible, q));
      return {d_q, d_k, d_v};
    }
    default: {
      const auto d =
          kernels::composed::attention_backward(d_out, q, k, v, {a.out, a.logsumexp}, visible);
      return {d.q, d.k, d.v};
    }
  }
}

}  // namespace finetune::model
