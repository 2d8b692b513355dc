// SPDX-License-Identifier: Apache-2.0
#include "model/gpu_attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "model/attention_sinks.hpp"
#include "model/device.hpp"
#include "model/upload.hpp"

namespace finetune::model {
namespace {

// Of _efficient_attention_forward: a query sees what comes before it in its sample.
constexpr std::int64_t causal_from_top_left = 1;

struct Heads {
  at::Tensor q, k, v;  ///< [N, H, K] and [N, Hkv, K], views
};

Heads heads_of(const at::Tensor& qkv, const AttentionShape& shape) {
  const auto part = [&](std::int64_t first, std::int64_t count) {
    return qkv.narrow(1, first * shape.head_size, count * shape.head_size)
        .unflatten(1, {count, shape.head_size});
  };
  return {part(0, shape.num_heads), part(shape.num_heads, shape.num_kv_heads),
          part(shape.num_heads + shape.num_kv_heads, shape.num_kv_heads)};
}

/// Adds the ends of stretches of at most `chunk` tokens (0: any number).
void add_ends(std::vector<std::int32_t>& ends, std::int64_t begin, std::int64_t length,
              std::int64_t chunk) {
  const std::int64_t step = chunk > 0 ? chunk : length;
  for (std::int64_t first = 0; first < length; first += step)
    ends.push_back(static_cast<std::int32_t>(begin + std::min(first + step, length)));
}

Segments find_segments(const Sequence& sequence, std::int64_t chunk, at::Device device) {
  std::vector<std::int32_t> ends{0};
  if (sequence.stretches.empty()) {
    for (std::int64_t row = 0; row < sequence.batch; ++row)
      add_ends(ends, row * sequence.length, sequence.length, chunk);
  }
  for (const Stretch& stretch : sequence.stretches)
    add_ends(ends, stretch.begin, stretch.length, chunk);
  Segments segments;
  for (std::size_t i = 1; i < ends.size(); ++i)
    segments.longest = std::max<std::int64_t>(segments.longest, ends[i] - ends[i - 1]);
  segments.begins = upload(at::tensor(ends, at::kInt), device);
  return segments;
}

/// Of all layers of a pass that cut it alike.
const Segments& segments_of(const Sequence& sequence, std::int64_t chunk, at::Device device) {
  auto [entry, is_new] = sequence.segments->try_emplace(chunk);
  if (is_new) entry->second = find_segments(sequence, chunk, device);
  return entry->second;
}

/// Tokens before itself that a query sees; none: all of its segment.
std::optional<std::int64_t> window_left(const AttentionShape& shape, const Segments& segments) {
  if (shape.window <= 0 || shape.window >= segments.longest) return std::nullopt;
  return shape.window - 1;
}

/// The same as CUTLASS' kernel counts: with itself.
std::optional<std::int64_t> window_size(const AttentionShape& shape, const Segments& segments) {
  const auto left = window_left(shape, segments);
  return left ? std::optional(*left + 1) : std::nullopt;
}

GpuAttention who_computes(const at::Tensor& qkv, const AttentionShape& shape) {
  return choose_gpu_attention(compute_capability(qkv.device()), qkv.scalar_type(), shape.head_size)
      .who;
}

/// [N, Hkv, K] -> [1, N, H, K]: each key head once for every query head that shares it.
at::Tensor repeat_heads(const at::Tensor& x, const AttentionShape& shape) {
  const std::int64_t group = shape.num_heads / shape.num_kv_heads;
  const at::Tensor batched = x.unsqueeze(0);
  if (group == 1) return batched;
  return batched.unsqueeze(3)
      .expand({1, x.size(0), shape.num_kv_heads, group, shape.head_size})
      .reshape({1, x.size(0), shape.num_heads, shape.head_size});
}

/// The gradient of what repeat_heads read: [1, N, H, K] -> [N, Hkv, K].
at::Tensor add_up_heads(const at::Tensor& d, const AttentionShape& shape) {
  if (shape.num_heads == shape.num_kv_heads) return d[0];
  return d[0].unflatten(1, {shape.num_kv_heads, shape.num_heads / shape.num_kv_heads}).sum(2);
}

at::Tensor join(const at::Tensor& d_q, const at::Tensor& d_k, const at::Tensor& d_v) {
  return at::cat({d_q.flatten(1), d_k.flatten(1), d_v.flatten(1)}, 1);
}

}  // namespace

GpuAttentionChoice choose_gpu_attention(int capability, at::ScalarType dtype,
                                        std::int64_t head_size) {
  const bool is_narrow = dtype == at::kBFloat16 || dtype == at::kHalf;
  const bool has_bf16 = capability >= 80;
  if (dtype == at::kBFloat16 && !has_bf16)
    return {GpuAttention::composed, "no kernel computes in bf16 before compute capability 8.0"};
  if (!is_narrow && dtype != at::kFloat)
    return {GpuAttention::composed, "no kernel computes in this dtype"};
  // Rows of 16 bytes.
  if (head_size % (is_narrow ? 8 : 4) != 0)
    return {GpuAttention::composed, "kernels read rows of 16 bytes, which heads of this size lack"};
  if (!is_narrow) return {GpuAttention::efficient, "flash attention has no fp32"};
  if (!has_bf16) return {GpuAttention::efficient, "flash attention needs compute capability 8.0"};
  if (head_size > 256) return {GpuAttention::efficient, "flash attention has heads up to 256"};
  // Of these the shared memory is too small for the gradients of larger heads.
  const bool is_small = capability == 86 || capability == 89 || capability >= 120;
  if (is_small && head_size > 192)
    return {GpuAttention::efficient, "flash attention has heads up to 192 on this GPU"};
  return {GpuAttention::flash, "one launch per layer, whatever the lengths"};
}

std::string gpu_attention_text(int capability, at::ScalarType dtype, std::int64_t head_size) {
  const GpuAttentionChoice choice = choose_gpu_attention(capability, dtype, head_size);
  const char* name = choice.who == GpuAttention::flash       ? "FlashAttention-2"
                     : choice.who == GpuAttention::efficient ? "CUTLASS' efficient kernel"
                                                             : "products and a softmax";
  return fmt::format("attention by {} (compute capability {}.{}, heads of {}: {})", name,
                     capability / 10, capability % 10, head_size, choice.why);
}

bool is_one_launch(const at::Tensor& qkv, const AttentionShape& shape, Path path) {
  return path != Path::composed && !qkv.is_cpu() && shape.softcap == 0 &&
         who_computes(qkv, shape) != GpuAttention::composed;
}

namespace {

/// [N, H K] -> [1, H, N, K], a view.
at::Tensor by_heads(const at::Tensor& x_NF, const AttentionShape& shape) {
  return x_NF.unflatten(1, {shape.num_heads, shape.head_size}).transpose(0, 1).unsqueeze(0);
}

/// CUTLASS' kernel has the logarithms of each segment at a place of its own, [segments, H, more
/// than the longest]: of token i of all, in such a tensor with H last.
c10::List<std::optional<at::Tensor>> places_of_tokens(const Segments& segments,
                                                      std::int64_t num_tokens) {
  const at::Tensor token = at::arange(num_tokens, segments.begins.options());
  const at::Tensor segment = at::searchsorted(segments.begins, token, /*out_int32=*/false,
                                              /*right=*/true) -
                             1;
  c10::List<std::optional<at::Tensor>> places;
  places.push_back(segment);
  places.push_back(token.to(at::kLong) - segments.begins.index_select(0, segment));
  return places;
}

/// Of all tokens [1, H, N]: a view, or where CUTLASS has them a copy.
at::Tensor logsumexp_of_tokens(const at::Tensor& logsumexp, const Segments& segments,
                               std::int64_t num_tokens) {
  if (logsumexp.dim() == 2) return logsumexp.unsqueeze(0);
  return at::index(logsumexp.transpose(1, 2), places_of_tokens(segments, num_tokens))
      .t()
      .unsqueeze(0);
}

void add_sinks_to_launch(const Sinks& sinks, const AttentionShape& shape, const Segments& segments,
                         AttendedPass& pass) {
  if (!sinks.exist()) return;
  const std::int64_t num_tokens = pass.out.size(0);
  const at::Tensor& kept = pass.pieces.front().logsumexp;
  const at::Tensor all = logsumexp_of_tokens(kept, segments, num_tokens);
  sinks.add_to(by_heads(pass.out, shape), all);
  if (kept.dim() == 2) return;
  at::Tensor by_place = kept.transpose(1, 2);
  at::index_put_(by_place, places_of_tokens(segments, num_tokens), all[0].t());
}

void add_gradient_of_launch(const Sinks& sinks, const at::Tensor& d_out,
                            const AttentionShape& shape, const Segments& segments,
                            const AttendedPass& pass) {
  if (!sinks.exist()) return;
  Sinks::Gradient gradient(sinks);
  gradient.add(by_heads(d_out, shape), by_heads(pass.out, shape),
               logsumexp_of_tokens(pass.pieces.front().logsumexp, segments, d_out.size(0)));
  gradient.finish();
}

}  // namespace

AttendedPass attend_in_one_launch(const at::Tensor& qkv, const AttentionShape& shape,
                                  const Sequence& sequence, const Sinks& sinks) {
  const Heads heads = heads_of(qkv, shape);
  const Segments& segments = segments_of(sequence, shape.chunk, qkv.device());
  AttendedPass result;
  Attended& a = result.pieces.emplace_back();
  if (who_computes(qkv, shape) == GpuAttention::flash) {
    at::Tensor out, debug_mask;
    std::tie(out, a.logsumexp, a.philox_seed, a.philox_offset, debug_mask) =
        at::_flash_attention_forward(heads.q, heads.k, heads.v, segments.begins, segments.begins,
                                     segments.longest, segments.longest, /*dropout_p=*/0.0,
                                     /*is_causal=*/true, /*return_debug_mask=*/false,
                                     /*scale=*/std::nullopt, window_left(shape, segments),
                                     /*window_size_right=*/0);
    result.out = out.flatten(1);
    add_sinks_to_launch(sinks, shape, segments, result);
    return result;
  }
  const auto outcome = at::_efficient_attention_forward(
      heads.q.unsqueeze(0), repeat_heads(heads.k, shape), repeat_heads(heads.v, shape), {},
      segments.begins, segments.begins, segments.longest, segments.longest, /*dropout_p=*/0.0,
      causal_from_top_left, /*compute_log_sumexp=*/true, /*scale=*/std::nullopt, {},
      window_size(shape, segments));
  result.out = std::get<0>(outcome)[0].flatten(1);
  a.logsumexp = std::get<1>(outcome);
  a.philox_seed = std::get<2>(outcome);
  a.philox_offset = std::get<3>(outcome);
  add_sinks_to_launch(sinks, shape, segments, result);
  return result;
}

at::Tensor attend_in_one_launch_backward(const at::Tensor& d_out, const at::Tensor& qkv,
                                         const AttentionShape& shape, const Sequence& sequence,
                                         const AttendedPass& attended, const Sinks& sinks) {
  const Heads heads = heads_of(qkv, shape);
  const Segments& segments = segments_of(sequence, shape.chunk, qkv.device());
  const Attended& a = attended.pieces.front();
  const at::Tensor d_heads = d_out.unflatten(1, {shape.num_heads, shape.head_size});
  const at::Tensor out = attended.out.unflatten(1, {shape.num_heads, shape.head_size});
  add_gradient_of_launch(sinks, d_out, shape, segments, attended);
  if (who_computes(qkv, shape) == GpuAttention::flash) {
    const auto [d_q, d_k, d_v] = at::_flash_attention_backward(
        d_heads, heads.q, heads.k, heads.v, out, a.logsumexp, segments.begins, segments.begins,
        segments.longest, segments.longest, /*dropout_p=*/0.0, /*is_causal=*/true, a.philox_seed,
        a.philox_offset, /*scale=*/std::nullopt, window_left(shape, segments),
        /*window_size_right=*/0);
    return join(d_q, d_k, d_v);
  }
  const auto [d_q, d_k, d_v, d_bias] = at::_efficient_attention_backward(
      d_heads.unsqueeze(0), heads.q.unsqueeze(0), repeat_heads(heads.k, shape),
      repeat_heads(heads.v, shape), {}, out.unsqueeze(0), segments.begins, segments.begins,
      segments.longest, segments.longest, a.logsumexp, /*dropout_p=*/0.0, a.philox_seed,
      a.philox_offset, causal_from_top_left, /*bias_requires_grad=*/false, /*scale=*/std::nullopt,
      /*num_splits_key=*/std::nullopt, window_size(shape, segments));
  return join(d_q[0], add_up_heads(d_k, shape), add_up_heads(d_v, shape));
}

bool is_launch_per_run(const at::Tensor& qkv, const AttentionShape& shape, Path path) {
  return path != Path::composed && !qkv.is_cpu() && shape.softcap == 0 &&
         who_computes(qkv, shape) == GpuAttention::flash;
}

namespace {

/// As FlashAttention-2 takes windows: the keys to the left of a query's own.
std::optional<std::int64_t> left_of(const RunSight& sight) {
  return sight.window > 0 ? std::optional(sight.window - 1) : std::nullopt;
}

std::optional<std::int64_t> right_of(const RunSight& sight) {
  return sight.is_causal ? std::optional<std::int64_t>(0) : std::nullopt;
}

/// [1, heads, tokens, K] <-> [1, tokens, heads, K].
at::Tensor turned(const at::Tensor& x) {
  return x.transpose(1, 2);
}

}  // namespace

Attended attend_run(const QkvViews& views, const RunSight& sight) {
  Attended a;
  at::Tensor out, debug_mask;
  std::tie(out, a.logsumexp, a.philox_seed, a.philox_offset, debug_mask) =
      at::_flash_attention_forward(turned(views.q), turned(views.k), turned(views.v), {}, {},
                                   views.q.size(2), views.k.size(2), /*dropout_p=*/0.0,
                                   sight.is_causal, /*return_debug_mask=*/false,
                                   /*scale=*/std::nullopt, left_of(sight), right_of(sight));
  a.out = turned(out);
  return a;
}

QkvViews attend_run_backward(const at::Tensor& d_out, const QkvViews& views,
                             const Attended& attended, const RunSight& sight) {
  // Nothing is dropped: nobody reads the random state.
  const at::Tensor no_state = at::empty({2}, views.q.options().dtype(at::kLong));
  const auto [d_q, d_k, d_v] = at::_flash_attention_backward(
      turned(d_out), turned(views.q), turned(views.k), turned(views.v), turned(attended.out),
      attended.logsumexp.contiguous(), {}, {}, views.q.size(2), views.k.size(2),
      /*dropout_p=*/0.0, sight.is_causal, no_state, no_state, /*scale=*/std::nullopt,
      left_of(sight), right_of(sight));
  return {turned(d_q), turned(d_k), turned(d_v)};
}

}  // namespace finetune::model
