// SPDX-License-Identifier: Apache-2.0
// The fused attention of GPUs on the simulated device: what libtorch's FlashAttention-2 and CUTLASS
// kernels promise, from the definition of attention, in fp32.
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "simulated/device/device.hpp"
#include "simulated/device/kernel.hpp"

namespace finetune::simulated {
namespace {

struct Shape {
  at::Tensor begins;    ///< [segments + 1] int32, of queries
  at::Tensor begins_k;  ///< and of their keys
  std::int64_t window_left = -1;
  bool is_causal = true;  ///< keys end where the queries do
};

/// Scaled scores [H, L, M] of a segment with what is hidden at -infinity.
at::Tensor scores_of(const at::Tensor& q_HLK, const at::Tensor& k_HMK, const Shape& shape) {
  const std::int64_t length = q_HLK.size(1), keys = k_HMK.size(1), self = keys - length;
  const double scale = 1 / std::sqrt(static_cast<double>(q_HLK.size(2)));
  const at::Tensor all = at::ones({length, keys}, at::kBool);
  at::Tensor seen = shape.is_causal ? all.tril(self) : all;
  if (shape.window_left >= 0) seen = seen.logical_and(all.triu(self - shape.window_left));
  return at::matmul(q_HLK, k_HMK.transpose(1, 2))
      .mul(scale)
      .masked_fill(seen.logical_not(), -std::numeric_limits<float>::infinity());
}

/// Tokens [begin, begin + length).
struct Run {
  std::int64_t begin, length;
};

/// Calls f(queries, keys) for each segment.
template <typename F>
void for_each_segment(const Shape& shape, const F& f) {
  const auto* q = shape.begins.const_data_ptr<std::int32_t>();
  const auto* k = shape.begins_k.const_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i + 1 < shape.begins.numel(); ++i)
    f(Run{q[i], q[i + 1] - q[i]}, Run{k[i], k[i + 1] - k[i]});
}

/// [N, Hkv, K] -> fp32 [H, L, K] of a run.
at::Tensor part(const at::Tensor& x_NHK, std::int64_t num_heads, const Run& run) {
  const at::Tensor heads = x_NHK.narrow(0, run.begin, run.length).to(at::kFloat).transpose(0, 1);
  return heads.repeat_interleave(num_heads / heads.size(0), 0);
}

/// {out [N, H, K], logsumexp [H, N] fp32}, all on the CPU.
std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const Shape& shape) {
  const std::int64_t num_heads = q.size(1);
  at::Tensor out = at::empty(q.sizes(), q.options());
  at::Tensor logsumexp = at::empty({num_heads, q.size(0)}, q.options().dtype(at::kFloat));
  for_each_segment(shape, [&](const Run& queries, const Run& keys) {
    const at::Tensor scores =
        scores_of(part(q, num_heads, queries), part(k, num_heads, keys), shape);
    out.narrow(0, queries.begin, queries.length)
        .copy_(at::matmul(scores.softmax(-1), part(v, num_heads, keys)).transpose(0, 1));
    logsumexp.narrow(1, queries.begin, queries.length).copy_(scores.logsumexp(-1));
  });
  return {out, logsumexp};
}

/// {d_q, d_k, d_v}, shaped like q, k, v.
std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& d_out,
                                                        const at::Tensor& q, const at::Tensor& k,
                                                        const at::Tensor& v, const at::Tensor& out,
                                                        const at::Tensor& logsumexp,
                                                        const Shape& shape) {
  const std::int64_t num_heads = q.size(1);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(2)));
  at::Tensor d_q = at::empty(q.sizes(), q.options());
  at::Tensor d_k = at::empty(k.sizes(), k.options());
  at::Tensor d_v = at::empty(v.sizes(), v.options());
  const auto add_up = [&](const at::Tensor& d_HLK, const at::Tensor& like) {
    return d_HLK.unflatten(0, {like.size(1), num_heads / like.size(1)}).sum(1).transpose(0, 1);
  };
  for_each_segment(shape, [&](const Run& queries, const Run& keys) {
    const auto of = [&](const at::Tensor& x) { return part(x, num_heads, queries); };
    const at::Tensor own_k = part(k, num_heads, keys), own_v = part(v, num_heads, keys);
    const at::Tensor probabilities =
        scores_of(of(q), own_k, shape)
            .sub(logsumexp.narrow(1, queries.begin, queries.length).unsqueeze(2))
            .exp();
    const at::Tensor d = of(d_out);
    const at::Tensor d_scores = probabilities.mul(
        at::matmul(d, own_v.transpose(1, 2)).sub(d.mul(of(out)).sum(-1, /*keepdim=*/true)));
    d_q.narrow(0, queries.begin, queries.length)
        .copy_(at::matmul(d_scores, own_k).mul(scale).transpose(0, 1));
    d_k.narrow(0, keys.begin, keys.length)
        .copy_(add_up(at::matmul(d_scores.transpose(1, 2), of(q)).mul(scale), k));
    d_v.narrow(0, keys.begin, keys.length)
        .copy_(add_up(at::matmul(probabilities.transpose(1, 2), d), v));
  });
  return {d_q, d_k, d_v};
}

/// As FlashAttention-2's kernels insist.
void check_flash(const at::Tensor& q) {
  TORCH_CHECK(q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf,
              "FlashAttention only supports fp16 and bf16");
  TORCH_CHECK(q.dim() == 3 && q.size(2) % 8 == 0 && q.size(2) <= 256 && q.stride(2) == 1,
              "q is [tokens, heads, up to 256]");
  TORCH_CHECK(capability() >= 80, "FlashAttention only supports Ampere GPUs or newer");
}

/// Of segments, where their begins are given, else of one batch: [1, L, H, K] without its first.
struct FlashCall {
  Shape shape;
  bool is_batch = false;

  FlashCall(const at::Tensor& q, const at::Tensor& k, const at::Tensor& begins_q,
            const at::Tensor& begins_k, bool is_causal, std::optional<c10::SymInt> window_left)
      : is_batch(!begins_q.defined()) {
    shape.is_causal = is_causal;
    shape.window_left = window_left ? window_left->expect_int() : -1;
    if (is_batch) {
      TORCH_CHECK(q.dim() == 4 && q.size(0) == 1, "simulated: a batch of one");
      const auto up_to = [](std::int64_t end) {
        return at::tensor({0, static_cast<std::int32_t>(end)}, at::kInt);
      };
      shape.begins = up_to(q.size(1));
      shape.begins_k = up_to(k.size(1));
    } else {
      for (const at::Tensor& begins : {begins_q, begins_k})
        TORCH_CHECK(begins.scalar_type() == at::kInt && begins.is_contiguous(),
                    "lengths are int32");
      shape.begins = of_device(begins_q);
      shape.begins_k = of_device(begins_k);
    }
    check_flash(inner(q));
  }

  at::Tensor inner(const at::Tensor& x) const { return is_batch ? x[0] : x; }
  at::Tensor outer(const at::Tensor& x) const { return is_batch ? x.unsqueeze(0) : x; }
};

using Five = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Five flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const std::optional<at::Tensor>& begins_q,
                   const std::optional<at::Tensor>& begins_k, c10::SymInt, c10::SymInt,
                   double dropout, bool is_causal, bool, std::optional<double>,
                   std::optional<c10::SymInt> window_left, std::optional<c10::SymInt>,
                   const std::optional<at::Tensor>&, const std::optional<at::Tensor>&) {
  const Operation operation = launched("aten::_flash_attention_forward");
  TORCH_CHECK(dropout == 0, "simulated: nothing is dropped");
  const FlashCall call(q, k, begins_q.value_or(at::Tensor()), begins_k.value_or(at::Tensor()),
                       is_causal, window_left);
  const auto [out, logsumexp] = forward(call.inner(of_device(q)), call.inner(of_device(k)),
                                        call.inner(of_device(v)), call.shape);
  const at::Device device = q.device();
  const at::Tensor none = at::empty({0}, q.options());
  return {to_device(call.outer(out), device), to_device(call.outer(logsumexp), device),
          at::empty({2}, q.options().dtype(at::kLong)), at::empty({}, q.options().dtype(at::kLong)),
          none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(
    const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& begins_q,
    const at::Tensor& begins_k, c10::SymInt, c10::SymInt, double, bool is_causal, const at::Tensor&,
    const at::Tensor&, std::optional<double>, std::optional<c10::SymInt> window_left,
    std::optional<c10::SymInt>) {
  const Operation operation = launched("aten::_flash_attention_backward");
  const FlashCall call(q, k, begins_q, begins_k, is_causal, window_left);
  const auto of = [&](const at::Tensor& x) { return call.inner(of_device(x)); };
  const auto [d_q, d_k, d_v] =
      backward(of(d_out), of(q), of(k), of(v), of(out), of(logsumexp), call.shape);
  const auto there = [&](const at::Tensor& x) { return to_device(call.outer(x), q.device()); };
  return {there(d_q), there(d_k), there(d_v)};
}

using Six = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt>;

/// Calls f(segment, its first token, how many) for the segments that `begins` [S + 1], int32, has.
template <typename F>
void for_each_segment(const at::Tensor& begins, const F& f) {
  const auto* begin = begins.const_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i + 1 < begins.numel(); ++i)
    f(i, begin[i], begin[i + 1] - begin[i]);
}

/// [H, N] -> [S, H, a multiple of 32 tokens], as CUTLASS' kernel has it: NaN where no token is.
at::Tensor by_segment(const at::Tensor& x_HN, const at::Tensor& begins, std::int64_t longest) {
  constexpr std::int64_t aligned = 32;
  const at::Tensor x =
      at::full({begins.numel() - 1, x_HN.size(0), (longest + aligned - 1) / aligned * aligned},
               std::numeric_limits<float>::quiet_NaN(), x_HN.options());
  for_each_segment(begins, [&](std::int64_t i, std::int64_t first, std::int64_t count) {
    x[i].narrow(1, 0, count).copy_(x_HN.narrow(1, first, count));
  });
  return x;
}

at::Tensor by_token(const at::Tensor& x_SHL, const at::Tensor& begins, std::int64_t num_tokens) {
  const at::Tensor x = at::zeros({x_SHL.size(1), num_tokens}, x_SHL.options());
  for_each_segment(begins, [&](std::int64_t i, std::int64_t first, std::int64_t count) {
    x.narrow(1, first, count).copy_(x_SHL[i].narrow(1, 0, count));
  });
  return x;
}

/// CUTLASS': [1, N, H, K], as many key heads as query heads; logsumexp as in by_segment.
Six efficient_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const std::optional<at::Tensor>&, const std::optional<at::Tensor>& begins_q,
                      const std::optional<at::Tensor>&, std::optional<c10::SymInt> longest,
                      std::optional<c10::SymInt>, double, std::int64_t mask, bool,
                      std::optional<double>, const std::optional<at::Tensor>&,
                      std::optional<std::int64_t> window) {
  const Operation operation = launched("aten::_efficient_attention_forward");
  TORCH_CHECK(begins_q && mask == 1 && q.size(0) == 1, "simulated: causal, of segments");
  TORCH_CHECK(q.size(2) == k.size(2) && q.size(2) == v.size(2), "each query head has a key head");
  const auto [out, logsumexp] =
      forward(of_device(q)[0], of_device(k)[0], of_device(v)[0],
              {of_device(*begins_q), of_device(*begins_q), window ? *window - 1 : -1});
  const at::Device device = q.device();
  const auto number = at::TensorOptions(at::kLong);
  return {to_device(out.unsqueeze(0), device),
          to_device(by_segment(logsumexp, of_device(*begins_q), longest->expect_int()), device),
          at::empty({}, number),
          at::empty({}, number),
          *longest,
          *longest};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_backward(
    const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const std::optional<at::Tensor>&, const at::Tensor& out,
    const std::optional<at::Tensor>& begins_q, const std::optional<at::Tensor>&, c10::SymInt,
    c10::SymInt, const at::Tensor& logsumexp, double, const at::Tensor&, const at::Tensor&,
    std::int64_t, bool, std::optional<double>, std::optional<std::int64_t>,
    std::optional<std::int64_t> window, bool) {
  const Operation operation = launched("aten::_efficient_attention_backward");
  const auto [d_q, d_k, d_v] =
      backward(of_device(d_out)[0], of_device(q)[0], of_device(k)[0], of_device(v)[0],
               of_device(out)[0], by_token(of_device(logsumexp), of_device(*begins_q), q.size(1)),
               {of_device(*begins_q), of_device(*begins_q), window ? *window - 1 : -1});
  const at::Device device = q.device();
  return {to_device(d_q.unsqueeze(0), device), to_device(d_k.unsqueeze(0), device),
          to_device(d_v.unsqueeze(0), device), at::Tensor()};
}

}  // namespace
}  // namespace finetune::simulated

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_flash_attention_forward", finetune::simulated::flash_forward);
  m.impl("_flash_attention_backward", finetune::simulated::flash_backward);
  m.impl("_efficient_attention_forward", finetune::simulated::efficient_forward);
  m.impl("_efficient_attention_backward", finetune::simulated::efficient_backward);
}
