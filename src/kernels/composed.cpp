// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "kernels/cross_entropy.hpp"
#include "kernels/detail/composed_rounding.hpp"

namespace finetune::kernels::composed {

// What is added, subtracted or multiplied with a number in fp32 is fp32 by that, and is rounded as
// it is written: copies in fp32 would be read and written in addition.

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
                                            double epsilon, double weight_offset) {
  const bool is_plain = weight_offset == 0;
  if (has_fused(x) && is_plain && weight.scalar_type() == x.scalar_type()) {
    auto [y, rstd] = at::_fused_rms_norm(x, {x.size(-1)}, weight, epsilon);
    return {y, rstd.squeeze(-1)};
  }
  const at::Tensor x_f = x.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(x_f.pow(2).mean(-1) + epsilon);
  const at::Tensor normal = (x_f * rstd.unsqueeze(-1)).to(x.scalar_type());
  if (is_plain) return {weight * normal, rstd};
  return {((weight.to(at::kFloat) + weight_offset) * normal).to(x.scalar_type()), rstd};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& dy, const at::Tensor& h,
                                                     const at::Tensor& weight,
                                                     const at::Tensor& rstd, double weight_offset) {
  if (has_fused(h) && weight_offset == 0 && weight.scalar_type() == h.scalar_type()) {
    auto [dx, dw] = at::_fused_rms_norm_backward(dy.contiguous(), h, {h.size(-1)},
                                                 rstd.unsqueeze(-1), weight, {true, true});
    return {dx, dw.to(at::kFloat)};
  }
  const at::Tensor dy_f = dy.to(at::kFloat), scale = rstd.unsqueeze(-1);
  const at::Tensor normal = h.to(at::kFloat) * scale;
  const at::Tensor d_normal = dy_f * (weight.to(at::kFloat) + weight_offset);
  const at::Tensor mean = (d_normal * normal).mean(-1, /*keepdim=*/true);
  const at::Tensor dx = (d_normal - normal * mean) * scale;
  return {dx.to(h.scalar_type()), (dy_f * normal).sum(0)};
}

std::tuple<at::Tensor, at::Tensor> layer_norm(const at::Tensor& x, const at::Tensor& weight,
                                              const at::Tensor& bias, double epsilon,
                                              double weight_offset) {
  const at::Tensor x_f = x.to(at::kFloat);
  const at::Tensor mean = x_f.mean(-1);
  const at::Tensor centred = x_f - mean.unsqueeze(-1);
  const at::Tensor rstd = at::rsqrt(centred.pow(2).mean(-1) + epsilon);
  at::Tensor y = (centred * rstd.unsqueeze(-1)).mul_(weight.to(at::kFloat) + weight_offset);
  if (bias.defined()) y.add_(bias);
  return {y.to(x.scalar_type()), at::stack({mean, rstd})};
}

LayerNormGradients layer_norm_backward(const at::Tensor& dy, const at::Tensor& h,
                                       const at::Tensor& weight, const at::Tensor& statistics,
                                       double weight_offset, NormGradients wanted) {
  const at::Tensor scale = statistics[1].unsqueeze(-1), dy_f = dy.to(at::kFloat);
  const at::Tensor normal = (h.to(at::kFloat) - statistics[0].unsqueeze(-1)).mul_(scale);
  const at::Tensor d_normal = dy_f * (weight.to(at::kFloat) + weight_offset);
  const at::Tensor along = (d_normal * normal).mean(-1, /*keepdim=*/true);
  const at::Tensor dx = (d_normal - d_normal.mean(-1, true) - normal * along).mul_(scale);
  return {dx.to(h.scalar_type()), wanted.weight ? (dy_f * normal).sum(0) : at::Tensor(),
          wanted.bias ? dy_f.sum(0) : at::Tensor()};
}

void rope_(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
           const at::Tensor& positions, const RopeHeads& heads, Rotation rotation) {
  const std::int64_t rotated = heads.query_heads + heads.key_heads;
  at::Tensor part = qkv.narrow(1, 0, rotated * heads.head_size)
                        .view({-1, rotated, heads.head_size})
                        .narrow(-1, 0, 2 * cos.size(1));
  const at::Tensor c = cos.index_select(0, positions).unsqueeze(1);
  at::Tensor s = sin.index_select(0, positions).unsqueeze(1);
  if (rotation == Rotation::backward) s = -s;
  const auto halves = heads.pairs == Pairs::halves
                          ? part.chunk(2, -1)
                          : part.unflatten(-1, {cos.size(1), 2}).unbind(-1);
  at::Tensor real = halves[0], imaginary = halves[1];
  at::Tensor rotated_real = at::empty_like(real, at::MemoryFormat::Contiguous);
  at::sub_out(rotated_real, real * c, imaginary * s);
  at::add_out(imaginary, imaginary * c, real * s);
  real.copy_(rotated_real);
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const auto halves = gate_up.chunk(2, -1);
  at::Tensor activated = at::empty_like(halves[1], at::MemoryFormat::Contiguous);
  at::mul_out(activated, at::silu(halves[0].to(at::kFloat)), halves[1]);
  return activated;
}

at::Tensor swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up) {
  const auto halves = gate_up.chunk(2, -1);
  const at::Tensor gate_f = halves[0].to(at::kFloat), dy_f = dy.to(at::kFloat);
  const at::Tensor gradient = at::empty_like(gate_up, at::MemoryFormat::Contiguous);
  auto gradients = gradient.chunk(2, -1);
  at::silu_backward_out(gradients[0], dy_f * halves[1], gate_f);
  at::mul_out(gradients[1], dy_f, at::silu(gate_f));
  return gradient;
}

namespace {

/// Of each label, 0 where there is none: [N, 1].
at::Tensor places_of(const at::Tensor& targets) {
  return targets.masked_fill(targets == ignored_target, 0).unsqueeze(-1);
}

CrossEntropy losses_of(const at::Tensor& log_softmax, const at::Tensor& logits,
                       const at::Tensor& targets) {
  const at::Tensor ignored = targets == ignored_target;
  const at::Tensor losses = -log_softmax.gather(-1, places_of(targets)).squeeze(-1);
  return {losses.masked_fill(ignored, 0), (logits.argmax(-1) == targets) & ~ignored, {}};
}

}  // namespace

CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  return losses_of(at::log_softmax(logits, -1, at::kFloat), logits, targets);
}

CrossEntropy cross_entropy_with_gradient(const at::Tensor& logits, const at::Tensor& targets,
                                         const at::Tensor& scales) {
  at::Tensor gradient = at::log_softmax(logits, -1, at::kFloat);
  CrossEntropy result = losses_of(gradient, logits, targets);
  const at::Tensor places = places_of(targets);
  gradient.exp_().scatter_add_(-1, places, at::full_like(places, -1, gradient.options()));
  gradient.mul_(scales.masked_fill(targets == ignored_target, 0).unsqueeze(-1));
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

namespace {

/// One read of the values, and a few more operations on one number for each row of 65,536.
at::Tensor squared_sum_by_rows(const at::Tensor& values) {
  constexpr std::int64_t row = 1 << 16;
  const std::int64_t whole = values.numel() / row * row;
  std::vector<at::Tensor> norms;
  if (whole > 0)
    norms.push_back(at::linalg_vector_norm(values.narrow(0, 0, whole).view({-1, row}), 2, 1));
  if (whole < values.numel())
    norms.push_back(
        at::linalg_vector_norm(values.narrow(0, whole, values.numel() - whole), 2, 0, true));
  if (norms.empty()) return at::zeros({}, values.options().dtype(at::kDouble));
  const at::Tensor wide = (norms.size() == 1 ? norms[0] : at::cat(norms)).to(at::kDouble);
  return at::dot(wide, wide);
}

}  // namespace

at::Tensor squared_sum(const at::Tensor& values) {
  if (has_fused(values) && is_fp32(values)) return squared_sum_by_rows(values);
  const at::Tensor wide = values.to(at::kDouble);
  return wide.mul(wide).sum();
}

}  // namespace finetune::kernels::composed
