// SPDX-License-Identifier: Apache-2.0
#include "model/activations.hpp"

#include "kernels/composed.hpp"
#include "kernels/composed_packed.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"
#include "model/detail/elements.hpp"

namespace finetune::model {

at::Tensor dropout(const at::Tensor& x_ND, const DropoutMask& dropout, int stream, Path path,
                   std::int64_t first_channel) {
  const kernels::DropoutKey key{dropout.seed, static_cast<std::uint32_t>(stream), first_channel};
  if (!has_kernels(x_ND, path))
    return kernels::composed::dropout(x_ND, dropout.tokens_N, key, dropout.p);
  const at::Tensor x = x_ND.contiguous();
  at::Tensor y = at::empty_like(x);
  dispatch(x, [&]<typename T>() {
    kernels::dropout(kernels::Dropout<T>{.x = span_of<const T>(x),
                                         .tokens = span_of<const std::int64_t>(dropout.tokens_N),
                                         .key = key,
                                         .p = dropout.p,
                                         .out = span_of<T>(y)},
                     place_of(x));
  });
  return y;
}

namespace {

at::Tensor swiglu(const at::Tensor& gate_up, Path path) {
  if (!has_kernels(gate_up, path)) return kernels::composed::swiglu(gate_up);
  const std::int64_t features = gate_up.size(1) / 2;
  at::Tensor y = at::empty({gate_up.size(0), features}, gate_up.options());
  dispatch(gate_up, [&]<typename T>() {
    kernels::swiglu(span_of<const T>(gate_up), features, span_of<T>(y), place_of(gate_up));
  });
  return y;
}

at::Tensor swiglu_backward(const at::Tensor& dy_NF, const at::Tensor& gate_up, Path path) {
  if (!has_kernels(gate_up, path)) return kernels::composed::swiglu_backward(dy_NF, gate_up);
  const at::Tensor dy = dy_NF.contiguous();
  at::Tensor d_gate_up = at::empty_like(gate_up);
  dispatch(gate_up, [&]<typename T>() {
    kernels::swiglu_backward(span_of<const T>(dy), span_of<const T>(gate_up), gate_up.size(1) / 2,
                             span_of<T>(d_gate_up), place_of(gate_up));
  });
  return d_gate_up;
}

using Function = Activation::Function;

/// As transformers does: in the dtype of the activations.
at::Tensor value_of(Function function, const at::Tensor& x) {
  switch (function) {
    case Function::silu:
      return at::silu(x);
    case Function::gelu:
      return at::gelu(x);
    case Function::gelu_tanh:
      return at::gelu(x, "tanh");
    default:
      return at::relu(x).square_();
  }
}

at::Tensor pull_back(Function function, const at::Tensor& dy, const at::Tensor& x) {
  switch (function) {
    case Function::silu:
      return at::silu_backward(dy, x);
    case Function::gelu:
      return at::gelu_backward(dy, x);
    case Function::gelu_tanh:
      return at::gelu_backward(dy, x, "tanh");
    default:
      return at::relu(x).mul_(2).mul_(dy);
  }
}

/// Views of gate and up.
struct GateUp {
  GateUp(const at::Tensor& both, const Activation& activation) {
    const auto every_second = [&](std::int64_t first) {
      return both.slice(1, first, std::nullopt, 2);
    };
    const std::int64_t features = both.size(1) / 2;
    gate = activation.takes_turns ? every_second(0) : both.narrow(1, 0, features);
    up = activation.takes_turns ? every_second(1) : both.narrow(1, features, features);
  }
  at::Tensor gate, up;
};

/// In the dtype of the activations, as transformers does.
at::Tensor clamped(const at::Tensor& gate_up, const Activation& activation) {
  const GateUp of(gate_up, activation);
  const at::Tensor gate = of.gate.clamp_max(activation.limit);
  const at::Tensor glu = (gate * activation.slope).sigmoid_().mul_(gate);
  return glu.mul_(of.up.clamp(-activation.limit, activation.limit).add_(1));
}

/// What is clamped has no gradient. d (g s(a g)) = s + a g s (1 - s).
at::Tensor clamped_backward(const at::Tensor& dy_NF, const at::Tensor& gate_up,
                            const Activation& activation) {
  const double limit = activation.limit, slope = activation.slope;
  const GateUp of(gate_up, activation);
  at::Tensor gradient = at::empty_like(gate_up);
  const GateUp d(gradient, activation);
  const at::Tensor gate = of.gate.clamp_max(limit);
  const at::Tensor share = (gate * slope).sigmoid_();
  at::Tensor d_up = d.up, d_gate = d.gate;
  at::mul_out(d_up, dy_NF, share * gate);
  d_up.masked_fill_(of.up.abs().gt(limit), 0);
  // In the place of the gate.
  const at::Tensor rise = gate.mul_(slope).mul_(1 - share).add_(1).mul_(share);
  rise.mul_(of.up.clamp(-limit, limit).add_(1));
  at::mul_out(d_gate, dy_NF, rise);
  d_gate.masked_fill_(of.gate.gt(limit), 0);
  return gradient;
}

}  // namespace

at::Tensor activate(const at::Tensor& gate_up, const Activation& activation, Path path) {
  if (activation.is_swiglu()) return swiglu(gate_up, path);
  if (activation.function == Function::clamped) return clamped(gate_up, activation);
  if (!activation.is_gated) return value_of(activation.function, gate_up);
  const auto halves = gate_up.chunk(2, 1);
  return value_of(activation.function, halves[0]).mul_(halves[1]);
}

at::Tensor activate_backward(const at::Tensor& dy_NF, const at::Tensor& gate_up,
                             const Activation& activation, Path path) {
  if (activation.is_swiglu()) return swiglu_backward(dy_NF, gate_up, path);
  if (activation.function == Function::clamped) return clamped_backward(dy_NF, gate_up, activation);
  if (!activation.is_gated) return pull_back(activation.function, dy_NF, gate_up);
  const auto halves = gate_up.chunk(2, 1);
  at::Tensor gradient = at::empty_like(gate_up);
  auto d = gradient.chunk(2, 1);
  d[0].copy_(pull_back(activation.function, dy_NF * halves[1], halves[0]));
  at::mul_out(d[1], value_of(activation.function, halves[0]), dy_NF);
  return gradient;
}

namespace {

/// What inputs up to 0 are multiplied with.
at::Tensor negative_alpha(const XieluNumbers& numbers) {
  return numbers.beta.to(at::kFloat) + at::softplus(numbers.negative.to(at::kFloat));
}

at::Tensor negative_part(const at::Tensor& x, const at::Tensor& eps) {
  return at::expm1(at::minimum(x, eps.to(at::kFloat))).sub_(x);
}

}  // namespace

at::Tensor xielu(const at::Tensor& x_NF, const XieluNumbers& numbers) {
  const at::Tensor x = x_NF.to(at::kFloat);
  const at::Tensor above = at::square(x).mul_(at::softplus(numbers.positive.to(at::kFloat)));
  const at::Tensor below = negative_part(x, numbers.eps).mul_(negative_alpha(numbers));
  return at::where(x.gt(0), above, below).add_(x * numbers.beta).to(x_NF.scalar_type());
}

XieluGradients xielu_backward(const at::Tensor& dy_NF, const at::Tensor& x_NF,
                              const XieluNumbers& numbers) {
  const at::Tensor x = x_NF.to(at::kFloat), dy = dy_NF.to(at::kFloat), is_above = x.gt(0);
  const at::Tensor positive = numbers.positive.to(at::kFloat);
  const at::Tensor negative = numbers.negative.to(at::kFloat);
  const at::Tensor eps = numbers.eps.to(at::kFloat);
  XieluGradients d;
  d.positive = at::where(is_above, at::square(x).mul_(dy), 0).sum() * positive.sigmoid();
  d.negative = at::where(is_above, 0, negative_part(x, eps).mul_(dy)).sum() * negative.sigmoid();
  const at::Tensor above = (2 * at::softplus(positive)) * x;
  const at::Tensor below = at::where(x.lt(eps), x.exp(), 0).sub_(1).mul_(negative_alpha(numbers));
  d.x = at::where(is_above, above, below)
            .add_(numbers.beta.to(at::kFloat))
            .mul_(dy)
            .to(x_NF.scalar_type());
  return d;
}

void rotate(at::Tensor& qkv, const AttentionShape& shape, const Sequence& sequence,
            RotateBy direction, Path path) {
  const auto rotation =
      direction == RotateBy::angle ? kernels::Rotation::forward : kernels::Rotation::backward;
  const auto pairs =
      shape.rotary == Rotary::pairs ? kernels::Pairs::neighbours : kernels::Pairs::halves;
  const RotaryTables& tables = shape.window > 0 && sequence.window_tables.cos.defined()
                                   ? sequence.window_tables
                                   : sequence.tables;
  if (!has_kernels(qkv, path)) {
    kernels::composed::rope_(qkv, tables.cos, tables.sin, sequence.positions,
                             {shape.num_heads, shape.num_kv_heads, shape.head_size, pairs},
                             rotation);
    return;
  }
  dispatch(qkv, [&]<typename T>() {
    kernels::rope(kernels::Rope<T>{.qkv = span_of<T>(qkv),
                                   .cos = span_of<const float>(tables.cos),
                                   .sin = span_of<const float>(tables.sin),
                                   .positions = span_of<const std::int64_t>(sequence.positions),
                                   .query_heads = shape.num_heads,
                                   .key_heads = shape.num_kv_heads,
                                   .head_size = shape.head_size,
                                   .rotary_size = 2 * tables.cos.size(1),
                                   .rotation = rotation,
                                   .pairs = pairs},
                  place_of(qkv));
  });
}

namespace {

/// On a GPU, where the ids are sorted, too.
void add_embedding_rows(const at::Tensor& ids_N, const at::Tensor& d_x_ND,
                        const at::Tensor& gradient_VD) {
  const auto [sorted, order] = at::sort(ids_N, /*stable=*/true, 0, /*descending=*/false);
  const auto ids = span_of<const std::int64_t>(sorted), places = span_of<const std::int64_t>(order);
  dispatch(gradient_VD, [&]<typename T>() {
    kernels::embedding_backward_sorted<T, T>(span_of<const T>(d_x_ND), ids, places, d_x_ND.size(1),
                                             span_of<T>(gradient_VD), place_of(gradient_VD));
  });
}

}  // namespace

void embedding_gradient(const at::Tensor& ids_N, const at::Tensor& d_x_ND,
                        const at::Tensor& gradient_VD, bool accumulate, Path path) {
  at::Tensor gradient = gradient_VD;
  if (!accumulate) gradient.zero_();
  if (!has_kernels(gradient, path))
    return kernels::composed::embedding_backward_(gradient, d_x_ND, ids_N);
  const at::Tensor d_x = d_x_ND.contiguous();
  if (!gradient.is_cpu()) return add_embedding_rows(ids_N, d_x, gradient);
  dispatch(gradient, [&]<typename T>() {
    kernels::embedding_backward<T, T>(span_of<const T>(d_x), span_of<const std::int64_t>(ids_N),
                                      d_x.size(1), span_of<T>(gradient));
  });
}

void score_labels(at::Tensor& logits_NV, const at::Tensor& labels_N, const at::Tensor& d_log_prob_N,
                  LabelScores& scores, Path path) {
  // Of losses, which are -log p.
  const at::Tensor scales = d_log_prob_N.defined() ? d_log_prob_N.neg() : at::Tensor();
  if (!has_kernels(logits_NV, path)) {
    const auto result = scales.defined() ? kernels::composed::cross_entropy_with_gradient(
                                               logits_NV, labels_N, scales)
                                         : kernels::composed::cross_entropy(logits_NV, labels_N);
    scores.is_first_N.copy_(result.correct.logical_or(labels_N.eq(kernels::ignored_target)));
    scores.log_prob_N.copy_(result.losses.neg());
    if (scales.defined()) logits_NV.copy_(result.gradient);
    return;
  }
  dispatch(logits_NV, [&]<typename T>() {
    const auto targets = span_of<const std::int64_t>(labels_N);
    const auto losses = span_of<float>(scores.log_prob_N);
    const auto hits = span_of<bool>(scores.is_first_N);
    const kernels::Place place = place_of(logits_NV);
    if (scales.defined())
      kernels::cross_entropy_with_gradient<T>(span_of<T>(logits_NV), targets,
                                              span_of<const float>(scales), losses, hits, place);
    else
      kernels::cross_entropy<T>(span_of<const T>(logits_NV), targets, losses, hits, place);
  });
  scores.log_prob_N.neg_();
}

}  // namespace finetune::model
