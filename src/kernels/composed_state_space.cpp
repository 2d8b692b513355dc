// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_state_space.hpp"

#include <algorithm>
#include <limits>

namespace finetune::kernels::composed {
namespace {

/// Of some tokens, c: values [G, R, c, K], what writes and what reads [G, 1, c, S], steps and
/// logarithms of what stays of a state [G, R, c].
struct StateTokens {
  at::Tensor values, writes, reads, steps, log_fades;

  StateTokens part(std::int64_t begin, std::int64_t count) const {
    const auto of = [&](const at::Tensor& x) { return x.narrow(2, begin, count); };
    return {of(values), of(writes), of(reads), of(steps), of(log_fades)};
  }
};

/// [n, G R K], or of groups alone [n, G K] -> [G, R, n, K].
at::Tensor by_group(const at::Tensor& x, std::int64_t groups, std::int64_t heads,
                    std::int64_t size) {
  return x.reshape({x.size(0), groups, heads, size}).permute({1, 2, 0, 3});
}

/// [G, R, c, K]; `state` [G, R, S, K] becomes that behind the tokens.
at::Tensor read_state(const StateTokens& of, at::Tensor& state) {
  const at::Tensor faded = of.log_fades.cumsum(2);  // since the chunk began
  const std::int64_t n = faded.size(2);
  const at::Tensor later = at::ones({n, n}, faded.options().dtype(at::kBool)).triu(1);
  // From a token to one after it.
  const at::Tensor fades = (faded.unsqueeze(3) - faded.unsqueeze(2))
                               .masked_fill(later, -std::numeric_limits<double>::infinity())
                               .exp();
  const at::Tensor put = of.values * of.steps.unsqueeze(3), to_end = faded.narrow(2, n - 1, 1);
  const at::Tensor seen = of.reads.matmul(of.writes.transpose(2, 3));
  const at::Tensor out =
      (seen * fades).matmul(put) + faded.exp().unsqueeze(3) * of.reads.matmul(state);
  const at::Tensor kept = of.writes * (to_end - faded).exp().unsqueeze(3);
  state = to_end.exp().unsqueeze(3) * state + kept.transpose(2, 3).matmul(put);
  return out;
}

/// Each channel over the tokens before; SiLU of that. [taps - 1 + n, channels] -> [n, channels].
at::Tensor short_convolution(const at::Tensor& channels, const StateWeights& w,
                             std::int64_t num_taps) {
  const std::int64_t n = channels.size(0) - (num_taps - 1);
  at::Tensor mixed = w.taps_bias;
  for (std::int64_t tap = 0; tap < num_taps; ++tap)
    mixed = mixed + channels.narrow(0, tap, n) * w.taps.select(1, tap);
  return at::silu(mixed);
}

at::Tensor state_stretch(const at::Tensor& x_NI, const StateWeights& w, const StateShape& s,
                         const MemoryStretch& stretch) {
  const std::int64_t n = stretch.count, history = s.taps - 1;
  const std::int64_t groups = s.num_groups, heads = s.heads_per_group, keys = s.keys();
  const at::Tensor x = x_NI.narrow(0, stretch.first, n)
                           .to(x_NI.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  at::Tensor tail = at::zeros({history, s.channels()}, x.options());
  at::Tensor state = at::zeros({groups, heads, s.state_size, s.head_size}, x.options());
  at::Tensor remembered;
  if (stretch.memory.defined()) {
    const std::int64_t size = history * s.channels();
    tail = stretch.memory.narrow(0, 0, size).view({history, s.channels()});
    remembered = stretch.memory.narrow(0, size, s.num_heads() * s.matrix())
                     .view({groups, heads, s.state_size, s.padded_head()})
                     .narrow(3, 0, s.head_size);
    state = remembered;
  }
  const at::Tensor channels = at::cat({tail, x.narrow(1, s.outputs(), s.channels())}, 0);
  const at::Tensor mixed = short_convolution(channels, w, s.taps);
  const at::Tensor steps =
      at::softplus(x.narrow(1, s.outputs() + s.channels(), s.num_heads()) + w.step_bias)
          .clamp(s.least_step, s.most_step);
  const StateTokens all{
      by_group(mixed.narrow(1, 0, s.outputs()), groups, heads, s.head_size),
      by_group(mixed.narrow(1, s.outputs(), keys), groups, 1, s.state_size),
      by_group(mixed.narrow(1, s.outputs() + keys, keys), groups, 1, s.state_size),
      by_group(steps, groups, heads, 1).squeeze(3),
      by_group(steps * -w.decay.exp(), groups, heads, 1).squeeze(3)};
  std::vector<at::Tensor> outs;
  for (std::int64_t begin = 0; begin < n; begin += state_chunk)
    outs.push_back(read_state(all.part(begin, std::min(state_chunk, n - begin)), state));
  if (remembered.defined()) {
    remembered.copy_(state);
    tail.copy_(channels.narrow(0, n, history));
  }
  const at::Tensor read = at::cat(outs, 2) + w.skip.view({groups, heads, 1, 1}) * all.values;
  const at::Tensor by_token = read.permute({2, 0, 1, 3}).reshape({n, groups, s.outputs_of_group()});
  const at::Tensor gated = by_token * at::silu(x.narrow(1, 0, s.outputs())).view_as(by_token);
  const at::Tensor scale =
      (gated.square().mean(-1, /*keepdim=*/true) + static_cast<double>(s.norm_eps)).rsqrt();
  return w.norm * (gated * scale).view({n, s.outputs()});
}

}  // namespace

at::Tensor state_space(const at::Tensor& x_NI, const StateWeights& weights, const StateShape& shape,
                       const std::vector<MemoryStretch>& stretches) {
  return by_stretches(x_NI, shape.outputs(), stretches, [&](const MemoryStretch& stretch) {
    return state_stretch(x_NI, weights, shape, stretch);
  });
}

}  // namespace finetune::kernels::composed
