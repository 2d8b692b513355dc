// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "kernels/cross_entropy.hpp"
#include "kernels/detail/composed_rounding.hpp"

namespace finetune::kernels::composed {

namespace {

/// Devices have operations of libtorch's that compute some of these in one go. On the host they
/// would be put together all the same, and the oracle of the kernels is to be read here.
bool has_fused(const at::Tensor& tensor) {
  return !tensor.is_cpu();
}

bool is_fp32(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, const at::Tensor& weight,
                                            double epsilon) {
  if (has_fused(x) && weight.scalar_type() == x.scalar_type()) {
    auto [y, rstd] = at::_fused_rms_norm(x, {x.size(-1)}, weight, epsilon);
    return {y, rstd.squeeze(-1)};
  }
  const at::Tensor x_f = x.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(x_f.pow(2).mean(-1) + epsilon);
  return {weight * (x_f * rstd.unsqueeze(-1)).to(x.scalar_type()), rstd};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& dy, const at::Tensor& h,
                                                     const at::Tensor& weight,
                                                     const at::Tensor& rstd) {
  if (has_fused(h) && weight.scalar_type() == h.scalar_type()) {
    auto [dx, dw] = at::_fused_rms_norm_backward(dy.contiguous(), h, {h.size(-1)},
                                                 rstd.unsqueeze(-1), weight, {true, true});
    return {dx, dw.to(at::kFloat)};
  }
  const at::Tensor dy_f = dy.to(at::kFloat), scale = rstd.unsqueeze(-1);
  const at::Tensor normal = h.to(at::kFloat) * scale;
  const at::Tensor d_normal = dy_f * weight.to(at::kFloat);
  const at::Tensor mean = (d_normal * normal).mean(-1, /*keepdim=*/true);
  const at::Tensor dx = (d_normal - normal * mean) * scale;
  return {dx.to(h.scalar_type()), (dy_f * normal).sum(0)};
}

void rope_(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
           const at::Tensor& positions, const RopeHeads& heads, Rotation rotation) {
  const std::int64_t rotated = heads.query_heads + heads.key_heads;
  at::Tensor part =
      qkv.narrow(1, 0, rotated * heads.head_size).view({-1, rotated, heads.head_size});
  const at::Tensor c = cos.index_select(0, positions).unsqueeze(1);
  at::Tensor s = sin.index_select(0, positions).unsqueeze(1);
  if (rotation == Rotation::backward) s = -s;
  const at::Tensor whole = part.to(at::kFloat);
  if (heads.pairs == Pairs::neighbours) {
    const auto both = whole.unflatten(-1, {heads.head_size / 2, 2}).unbind(-1);
    part.copy_(at::stack({both[0] * c - both[1] * s, both[1] * c + both[0] * s}, -1).flatten(-2));
    return;
  }
  const auto halves = whole.chunk(2, -1);
  part.copy_(at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1));
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const auto halves = gate_up.to(at::kFloat).chunk(2, -1);
  return (at::silu(halves[0]) * halves[1]).to(gate_up.scalar_type());
}

at::Tensor swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up) {
  const auto halves = gate_up.to(at::kFloat).chunk(2, -1);
  const at::Tensor dy_f = dy.to(at::kFloat);
  const at::Tensor d_gate = at::silu_backward(dy_f * halves[1], halves[0]);
  return at::cat({d_gate, dy_f * at::silu(halves[0])}, -1).to(gate_up.scalar_type());
}

CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor log_softmax = at::log_softmax(logits, -1, at::kFloat);
  const at::Tensor ignored = targets == ignored_target;
  const at::Tensor index = targets.masked_fill(ignored, 0).unsqueeze(-1);
  const at::Tensor losses = -log_softmax.gather(-1, index).squeeze(-1);
  return {losses.masked_fill(ignored, 0), (logits.argmax(-1) == targets) & ~ignored, {}};
}

CrossEntropy cross_entropy_with_gradient(const at::Tensor& logits, const at::Tensor& targets,
                                         const at::Tensor& scales) {
  CrossEntropy result = cross_entropy(logits, targets);
  const at::Tensor ignored = targets == ignored_target;
  const at::Tensor index = targets.masked_fill(ignored, 0).unsqueeze(-1);
  at::Tensor gradient = at::softmax(logits, -1, at::kFloat);
  gradient.scatter_add_(-1, index, at::full_like(index, -1, gradient.options()));
  gradient.mul_(scales.unsqueeze(-1)).masked_fill_(ignored.unsqueeze(-1), 0);
  result.gradient = gradient;
  return result;
}

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids) {
  return weight.index_select(0, ids);
}

void embedding_backward_(at::Tensor& dweight, const at::Tensor& dy, const at::Tensor& ids) {
  // Sums in fp32, of an id where its first one stands among the sorted: on a GPU index_add_ would
  // use atomics, and whoever counts the ids waits for it.
  const at::Tensor place = at::searchsorted(std::get<0>(ids.sort()), ids);
  at::Tensor sums = at::zeros(dy.sizes(), dy.options().dtype(at::kFloat));
  sums.index_put_({place}, dy.to(at::kFloat), /*accumulate=*/true);
  // An id that occurs twice is written twice, with the same row.
  const at::Tensor rows =
      dweight.index_select(0, ids).to(at::kFloat).add_(sums.index_select(0, place));
  dweight.index_copy_(0, ids, rows.to(dweight.scalar_type()));
}

namespace {

/// By one kernel. Scaled gradients are written back, which nobody reads.
void fused_adamw_(at::Tensor& weight, at::Tensor& exp_avg, at::Tensor& exp_avg_sq,
                  at::Tensor gradient, const AdamWNumbers& numbers) {
  const auto number = [&](double value) { return at::full({}, value, weight.options()); };
  std::optional<at::Tensor> divisor;
  if (numbers.gradient_scale != 1.0) divisor = number(1.0 / numbers.gradient_scale);
  const at::Tensor step = number(static_cast<double>(numbers.step));
  at::_fused_adamw_({weight}, {gradient}, {exp_avg}, {exp_avg_sq}, {}, {step}, numbers.lr,
                    numbers.beta1, numbers.beta2, numbers.weight_decay, numbers.epsilon,
                    /*amsgrad=*/false, /*maximize=*/false, divisor);
}

}  // namespace

void adamw_(at::Tensor& weight, at::Tensor& exp_avg, at::Tensor& exp_avg_sq,
            const at::Tensor& gradient, const AdamWNumbers& numbers) {
  if (has_fused(weight) && is_fp32(weight) && is_fp32(exp_avg) && is_fp32(exp_avg_sq) &&
      is_fp32(gradient))
    return fused_adamw_(weight, exp_avg, exp_avg_sq, gradient, numbers);
  const auto step = static_cast<double>(numbers.step);
  const double correction1 = 1.0 - std::pow(numbers.beta1, step);
  const double correction2 = 1.0 - std::pow(numbers.beta2, step);
  // The same tensors where they are fp32 already.
  at::Tensor w = weight.to(at::kFloat), m = exp_avg.to(at::kFloat), v = exp_avg_sq.to(at::kFloat);
  at::Tensor g = gradient.to(at::kFloat);
  if (numbers.gradient_scale != 1.0) g = g * numbers.gradient_scale;
  w.mul_(1.0 - numbers.lr * numbers.weight_decay);
  m.lerp_(g, 1.0 - numbers.beta1);
  v.mul_(numbers.beta2).addcmul_(g, g, 1.0 - numbers.beta2);
  const at::Tensor denominator = (v.sqrt() / std::sqrt(correction2)).add_(numbers.epsilon);
  w.addcdiv_(m, denominator, -numbers.lr / correction1);
  const bool is_narrow = !weight.is_same(w) || !exp_avg.is_same(m) || !exp_avg_sq.is_same(v);
  const StoreRounded store(is_narrow ? numbers.rounding : std::nullopt, numbers.index,
                           weight.size(0), weight);
  store(weight, w, RandomBits::weight);
  store(exp_avg, m, RandomBits::exp_avg);
  store(exp_avg_sq, v, RandomBits::exp_avg_sq);
}

at::Tensor squared_sum(const at::Tensor& values) {
  // In pieces: squares, and copies for the sum in fp64, are written on the way.
  constexpr std::int64_t most_elements = 1 << 22;
  at::Tensor sum = at::zeros({}, values.options().dtype(at::kDouble));
  for (std::int64_t first = 0; first < values.numel(); first += most_elements) {
    const at::Tensor piece =
        values.narrow(0, first, std::min(most_elements, values.numel() - first)).to(at::kDouble);
    sum.add_(piece.mul(piece).sum());
  }
  return sum;
}

}  // namespace finetune::kernels::composed
