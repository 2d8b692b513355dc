// SPDX-License-Identifier: Apache-2.0
// What the kernels between large products reach: attention, passes over activations, products with
// a thin side, and how long an operation takes to start.
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <span>

#include "kernels/attention.hpp"
#include "kernels/processor.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/swiglu.hpp"
#include "model/device.hpp"
#include "model/fp8_products.hpp"
#include "model/pinned.hpp"
#include "model/products.hpp"
#include "preflight/detail/rates.hpp"
#include "preflight/detail/timing.hpp"

namespace finetune::preflight {
namespace {

using kernels::bf16;

std::span<bf16> span_of(const at::Tensor& tensor) {
  return {static_cast<bf16*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

class Kernels {
 public:
  Kernels(at::Device device, Timing timing, model::Path bf16_path)
      : device_(device), timing_(timing), bf16_path_(bf16_path) {}

  /// TFLOP/s of a causal pass forward and backward, of which a plan counts 14 flops a channel and
  /// pair of tokens that see each other: of the kernel that a run takes.
  double attention_tflops(at::ScalarType dtype, std::int64_t length) const {
    const kernels::CausalShape shape{tokens() / length, length, heads(), heads(), head_size()};
    const double seconds = attention_s_of(shape, dtype);
    const auto pairs = static_cast<double>(tokens() * (length + 1)) / 2;
    return 14 * pairs * static_cast<double>(heads() * head_size()) / seconds / 1e12;
  }

  /// Elements that the host's kernels of a block read or write, in 1e9 a second: the activation and
  /// the norms before the products, forward and backward, in a model so small that they stay in the
  /// caches. 0 on a GPU.
  double pass_gelements_per_s() const {
    if (!device_.is_cpu()) return 0;
    constexpr std::int64_t rows = 512, width = 512, features = 1408;
    const at::Tensor gate_up = random({rows, 2 * features}), d_gate_up = at::empty_like(gate_up);
    const at::Tensor y = random({rows, features});
    const at::Tensor x = random({rows, width}), h = at::empty_like(x), normed = at::empty_like(x);
    const at::Tensor residual = random({rows, width}), weight = random({width});
    const at::Tensor rstd = at::empty({rows}, at::kFloat), dw = at::zeros({width}, at::kFloat);
    const std::span<float> rstd_N{rstd.data_ptr<float>(), rows}, dw_D{dw.data_ptr<float>(), width};
    const double seconds = seconds_of(normed, timing_, [&] {
      for (int norm = 0; norm < 2; ++norm) {
        kernels::rms_norm(kernels::RmsNormForward<bf16>{span_of(x), span_of(residual),
                                                        span_of(weight), 1e-5f, span_of(h),
                                                        span_of(normed), rstd_N});
        kernels::rms_norm_backward(
            kernels::RmsNormBackward<bf16>{span_of(x), span_of(h), span_of(weight), rstd_N,
                                           span_of(residual), span_of(normed), dw_D});
      }
      kernels::swiglu<bf16>(span_of(gate_up), features, span_of(y));
      kernels::swiglu_backward<bf16>(span_of(y), span_of(gate_up), features, span_of(d_gate_up));
    });
    // As a plan counts them: two norms with their sums, 4 + 4; the activation 3 + 5.
    const double elements = static_cast<double>(rows) * (2 * 8 * width + 8 * features);
    return elements / seconds / 1e9;
  }

  /// Seconds of the six products of a low-rank part [n, r] [r, n] with n rows, forward and
  /// backward.
  double low_rank_s(std::int64_t n, std::int64_t r) const {
    const at::Tensor x = random({n, n}), a = random({r, n}), b = random({n, r});
    at::Tensor y = at::empty_like(x);
    const model::Path path = bf16_path_;
    return seconds_of(y, timing_, [&] {
      const at::Tensor low = model::product(x, a.t(), path);
      model::product_out(y, low, b.t(), path);
      const at::Tensor d_b = model::product(x.t(), low, path);
      const at::Tensor d_low = model::product(x, b, path);
      const at::Tensor d_a = model::product(d_low.t(), x, path);
      model::product_out(y, d_low, a, path);
    });
  }

  /// Of square matrices [n, n] with operands of 8 bits and a scale per row, as training has them; 0
  /// on devices without such products.
  double fp8_tflops(std::int64_t n) const {
    if (device_.is_cpu() || n % model::fp8_multiple(model::Fp8Scaling::rowwise) != 0 ||
        !model::has_fp8_products(model::compute_capability(device_), model::Fp8Scaling::rowwise))
      return 0;
    const at::Tensor a = random({n, n}).to(at::kFloat8_e4m3fn), b = random({n, n}).to(a.dtype());
    const at::Tensor scales = at::ones({n, 1}, at::TensorOptions().device(device_));
    at::Tensor y;
    const double seconds = seconds_of(scales, timing_, [&] {
      y = at::_scaled_mm(a, b.t(), scales, scales.t(), {}, {}, at::kBFloat16,
                         /*use_fast_accum=*/true);
    });
    const auto side = static_cast<double>(n);
    return 2 * side * side * side / seconds / 1e12;
  }

  /// Seconds that a program needs for one operation with hardly anything to compute.
  double operation_s() const {
    constexpr int repeats = 32;
    const at::Tensor w = random({8, 8}).requires_grad_();
    const at::Tensor x = random({8, 8}).requires_grad_(), d = random({8, 8});
    at::Tensor last = d;
    // A product, its two gradients.
    return seconds_of(d, timing_,
                      [&] {
                        for (int i = 0; i < repeats; ++i)
                          last = torch::autograd::grad({at::mm(x, w)}, {x, w}, {d})[0];
                        finish(last);
                      }) /
           (3 * repeats);
  }

  /// GB/s between a GPU and pinned memory of the host, in the slower direction; 0 without a GPU.
  double host_link_gb_per_s(std::int64_t most_bytes) const {
    constexpr std::int64_t enough = std::int64_t{64} << 20;
    const std::int64_t count = std::min(most_bytes, enough) / std::int64_t{sizeof(float)};
    if (device_.is_cpu() || count == 0) return 0;
    const at::Tensor there = random({count}, at::kFloat);
    const at::Tensor here = model::pinned_empty({count}, at::kFloat);
    const double to_host_s =
        seconds_of(there, Timing::wall, [&] { here.copy_(there, /*non_blocking=*/true); });
    const double to_device_s =
        seconds_of(there, Timing::wall, [&] { there.copy_(here, /*non_blocking=*/true); });
    return static_cast<double>(there.nbytes()) / std::max(to_host_s, to_device_s) / 1e9;
  }

 private:
  /// By libtorch's kernel.
  double attention_s(at::ScalarType dtype, std::int64_t length) const {
    const at::Tensor qkv = random({tokens() / length, length, 3 * heads() * head_size()}, dtype);
    const auto part = [&](std::int64_t i) {
      return qkv.narrow(2, i * heads() * head_size(), heads() * head_size())
          .unflatten(2, {heads(), head_size()})
          .transpose(1, 2)
          .detach()
          .requires_grad_();
    };
    const at::Tensor q = part(0), k = part(1), v = part(2);
    const at::Tensor d_out = random({q.size(0), q.size(1), length, head_size()}, dtype);
    at::Tensor last = q;
    const auto run = [&] {
      const at::Tensor out = at::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
      last = torch::autograd::grad({out}, {q, k, v}, {d_out})[0];
    };
    return seconds_of(q.detach(), timing_, [&] {
      run();
      finish(last);
    });
  }

  /// By kernels of ours for elements of type T.
  template <typename T, typename Forward, typename Backward>
  double attention_by_s(const kernels::CausalShape& shape, at::ScalarType dtype,
                        const Forward& forward, const Backward& backward) const {
    const std::int64_t width = heads() * head_size();
    const at::Tensor qkv = random({tokens(), 3 * width}, dtype), d_qkv = at::empty_like(qkv);
    const at::Tensor out = random({tokens(), width}, dtype);
    const at::Tensor d_out = random({tokens(), width}, dtype);
    const at::Tensor logsumexp = at::empty({tokens() * heads()}, at::kFloat);
    /// The part of a tensor whose tokens are `stride` elements apart.
    const auto part = [&](const at::Tensor& x, std::int64_t stride, std::int64_t i) {
      return kernels::Heads<T>{static_cast<T*>(x.data_ptr()) + i * width, shape.length * stride,
                               head_size(), stride};
    };
    const auto read = [&](const at::Tensor& x, std::int64_t stride, std::int64_t i) {
      const kernels::Heads<T> heads = part(x, stride, i);
      return kernels::Heads<const T>{heads.data, heads.of_sample, heads.of_head, heads.of_token};
    };
    const kernels::CausalAttention<T> args{.shape = shape,
                                           .q = read(qkv, 3 * width, 0),
                                           .k = read(qkv, 3 * width, 1),
                                           .v = read(qkv, 3 * width, 2),
                                           .out = part(out, width, 0),
                                           .logsumexp = logsumexp.data_ptr<float>()};
    const kernels::CausalAttentionBackward<T> d_args{.shape = shape,
                                                     .q = args.q,
                                                     .k = args.k,
                                                     .v = args.v,
                                                     .out = read(out, width, 0),
                                                     .d_out = read(d_out, width, 0),
                                                     .logsumexp = args.logsumexp,
                                                     .d_q = part(d_qkv, 3 * width, 0),
                                                     .d_k = part(d_qkv, 3 * width, 1),
                                                     .d_v = part(d_qkv, 3 * width, 2)};
    return seconds_of(d_qkv, timing_, [&] {
      forward(args);
      backward(d_args);
    });
  }

  template <typename T>
  double widened_attention_s(const kernels::CausalShape& shape, at::ScalarType dtype) const {
    return attention_by_s<T>(shape, dtype, kernels::widened_attention<T>,
                             kernels::widened_attention_backward<T>);
  }

  /// By the kernel that model::Ops takes.
  double attention_s_of(const kernels::CausalShape& shape, at::ScalarType dtype) const {
    if (!device_.is_cpu()) return attention_s(dtype, shape.length);
    if (dtype == at::kFloat) return widened_attention_s<float>(shape, dtype);
    if (bf16_path_ == model::Path::widened) return widened_attention_s<bf16>(shape, dtype);
    if (!has_causal_attention(shape)) return attention_s(dtype, shape.length);
    return attention_by_s<bf16>(shape, dtype, kernels::causal_attention,
                                kernels::causal_attention_backward);
  }

  std::int64_t tokens() const { return device_.is_cpu() ? 2048 : 16384; }
  std::int64_t heads() const { return device_.is_cpu() ? 8 : 32; }
  std::int64_t head_size() const { return device_.is_cpu() ? 64 : 128; }

  at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype = at::kBFloat16) const {
    return at::randn(shape, at::TensorOptions().device(device_)).to(dtype);
  }

  at::Device device_;
  Timing timing_;
  model::Path bf16_path_;
};

}  // namespace

void measure_kernels(const Measuring& how, MeasuredRates& rates) {
  const Kernels kernels(model::compute_device(how.device.index), how.timing, how.bf16_path);
  constexpr std::int64_t short_length = 256, long_length = 1024, rank = 16;
  const double few = kernels.attention_tflops(at::kBFloat16, short_length);
  const double many = kernels.attention_tflops(at::kBFloat16, long_length);
  rates.attention_half_length = half_size_of(short_length, few, long_length, many);
  rates.attention_tflops = limit_of(many, long_length, rates.attention_half_length);
  rates.fp32_attention_tflops = limit_of(kernels.attention_tflops(at::kFloat, long_length),
                                         long_length, rates.attention_half_length);
  rates.pass_gelements_per_s = kernels.pass_gelements_per_s();
  rates.operation_us = 1e6 * kernels.operation_s();
  const auto side = static_cast<std::int64_t>(rates.bf16_size);
  if (side > rank)
    rates.least_side = least_side_of(rank, kernels.low_rank_s(side, rank) / 6, rates);
  if (side > 0) rates.fp8_tflops = kernels.fp8_tflops(side);
  if (how.device.index >= 0) rates.host_gb_per_s = measure_memory({}, how.most_bytes, Timing::wall);
  rates.host_link_gb_per_s = kernels.host_link_gb_per_s(how.most_bytes);
}

}  // namespace finetune::preflight
