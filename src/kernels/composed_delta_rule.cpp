// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_delta_rule.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace finetune::kernels::composed {
namespace {

/// What the heads of some tokens read: heads first, but channels, [n, C], and gates, [n, Hv, V].
struct Read {
  at::Tensor channels, gates;
  at::Tensor rates, decays;  ///< [n, Hv]
};

Read split(const at::Tensor& x, const DeltaShape& s) {
  const std::int64_t n = x.size(0), heads = s.num_value_heads(), values = s.values();
  const std::int64_t large = s.channels() + heads * s.value_size;
  const at::Tensor all = x.narrow(1, 0, large), small = x.narrow(1, large, 2 * heads);
  if (!s.is_by_key_head)
    return {all.narrow(1, 0, s.channels()),
            all.narrow(1, s.channels(), heads * s.value_size).reshape({n, heads, s.value_size}),
            small.narrow(1, 0, heads), small.narrow(1, heads, heads)};
  const at::Tensor by_key = all.reshape({n, s.num_key_heads, s.channels_of_key() + values});
  const auto part = [n](const at::Tensor& of_keys, std::int64_t begin, std::int64_t size) {
    return of_keys.narrow(2, begin, size).reshape({n, -1});
  };
  const at::Tensor pairs = small.reshape({n, s.num_key_heads, 2 * s.values_per_key});
  return {at::cat({part(by_key, 0, s.key_size), part(by_key, s.key_size, s.key_size),
                   part(by_key, 2 * s.key_size, values)},
                  1),
          part(by_key, s.channels_of_key(), values).view({n, heads, s.value_size}),
          part(pairs, 0, s.values_per_key), part(pairs, s.values_per_key, s.values_per_key)};
}

/// Divided by its length, of every value head: [n, Hk K] -> [Hv, n, K].
at::Tensor directions(const at::Tensor& x, const DeltaShape& s) {
  const std::int64_t n = x.size(0);
  const at::Tensor heads = x.reshape({n, s.num_key_heads, 1, s.key_size});
  const at::Tensor scale = (heads.square().sum(-1, /*keepdim=*/true) + 1e-6).rsqrt();
  return (heads * scale)
      .expand({n, s.num_key_heads, s.values_per_key, s.key_size})
      .reshape({n, s.num_value_heads(), s.key_size})
      .transpose(0, 1);
}

/// [Hv, c, V] of a chunk; `memory` [Hv, K, V] becomes that behind it.
at::Tensor read_chunk(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& rate, const at::Tensor& log_fade, at::Tensor& memory) {
  const at::Tensor faded = log_fade.cumsum(1);  // since the chunk began
  const at::Tensor later = at::ones({q.size(1), q.size(1)}, q.options().dtype(at::kBool)).triu(1);
  // From a token to one after it.
  const at::Tensor fades = (faded.unsqueeze(2) - faded.unsqueeze(1))
                               .masked_fill(later, -std::numeric_limits<double>::infinity())
                               .exp();
  const at::Tensor from_begin = faded.exp().unsqueeze(2), to_end = faded.select(1, -1).unsqueeze(1);
  // Every change depends on those before it: (1 + A) changes = what the memory lacks.
  const at::Tensor a = (rate.unsqueeze(2) * k.matmul(k.transpose(1, 2)) * fades).tril(-1);
  const at::Tensor lacks = rate.unsqueeze(2) * (v - from_begin * k.matmul(memory));
  const at::Tensor changes = at::linalg_solve_triangular(a, lacks, /*upper=*/false, /*left=*/true,
                                                         /*unitriangular=*/true);
  const at::Tensor out =
      from_begin * q.matmul(memory) + (q.matmul(k.transpose(1, 2)) * fades).matmul(changes);
  const at::Tensor kept = k * (to_end - faded).exp().unsqueeze(2);
  memory = to_end.exp().unsqueeze(2) * memory + kept.transpose(1, 2).matmul(changes);
  return out;
}

at::Tensor of_stretch(const at::Tensor& x_NI, const DeltaWeights& w, const DeltaShape& s,
                      const MemoryStretch& stretch) {
  const std::int64_t n = stretch.count, history = s.taps - 1, keys = s.num_key_heads * s.key_size;
  const std::int64_t heads = s.num_value_heads();
  const Read read = split(x_NI.narrow(0, stretch.first, n)
                              .to(x_NI.scalar_type() == at::kDouble ? at::kDouble : at::kFloat),
                          s);
  at::Tensor tail = at::zeros({history, s.channels()}, read.channels.options());
  at::Tensor memory = at::zeros({heads, s.key_size, s.value_size}, read.channels.options());
  at::Tensor kept;
  if (stretch.memory.defined()) {
    const std::int64_t size = history * s.channels();
    tail = stretch.memory.narrow(0, 0, size).view({history, s.channels()});
    kept = stretch.memory.narrow(0, size, heads * s.matrix())
               .view({heads, s.key_size, s.padded_value()})
               .narrow(2, 0, s.value_size);
    memory = kept;
  }
  const at::Tensor channels = at::cat({tail, read.channels}, 0);
  at::Tensor mixed;
  for (std::int64_t tap = 0; tap < s.taps; ++tap) {
    const at::Tensor term = channels.narrow(0, tap, n) * w.taps.select(1, tap);
    mixed = tap == 0 ? term : mixed + term;
  }
  mixed = at::silu(mixed);
  const at::Tensor q =
      directions(mixed.narrow(1, 0, keys), s) * (1 / std::sqrt(static_cast<double>(s.key_size)));
  const at::Tensor k = directions(mixed.narrow(1, keys, keys), s);
  const at::Tensor v = mixed.narrow(1, 2 * keys, heads * s.value_size)
                           .reshape({n, heads, s.value_size})
                           .transpose(0, 1);
  const at::Tensor rate = read.rates.sigmoid().t();
  const at::Tensor log_fade = (at::softplus(read.decays + w.decay_bias) * -w.decay.exp()).t();
  std::vector<at::Tensor> outs;
  for (std::int64_t begin = 0; begin < n; begin += delta_chunk) {
    const std::int64_t count = std::min(delta_chunk, n - begin);
    const auto part = [&](const at::Tensor& x) { return x.narrow(1, begin, count); };
    outs.push_back(read_chunk(part(q), part(k), part(v), part(rate), part(log_fade), memory));
  }
  if (kept.defined()) {
    kept.copy_(memory);
    tail.copy_(channels.narrow(0, n, history));
  }
  const at::Tensor out = at::cat(outs, 1).transpose(0, 1);
  const at::Tensor scale =
      (out.square().mean(-1, /*keepdim=*/true) + static_cast<double>(s.norm_eps)).rsqrt();
  return (w.norm * (out * scale) * at::silu(read.gates)).reshape({n, s.outputs()});
}

}  // namespace

at::Tensor delta_rule(const at::Tensor& x_NI, const DeltaWeights& weights, const DeltaShape& shape,
                      const std::vector<MemoryStretch>& stretches) {
  return by_stretches(x_NI, shape.outputs(), stretches, [&](const MemoryStretch& stretch) {
    return of_stretch(x_NI, weights, shape, stretch);
  });
}

}  // namespace finetune::kernels::composed
