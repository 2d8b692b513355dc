// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/host_threads.hpp"
#include "kernels/few_rows.hpp"

namespace finetune::kernels {
namespace {

// Several sums side by side: else each addition waits for the one before.
constexpr std::int64_t side_by_side = 16;

template <class T>
float dot(const float* a, const T* b, std::int64_t size) {
  float sums[side_by_side] = {};
  const std::int64_t whole = size / side_by_side * side_by_side;
  for (std::int64_t i = 0; i < whole; i += side_by_side)
    for (std::int64_t j = 0; j < side_by_side; ++j)
      sums[j] += a[i + j] * to_float(b[i + j]);
  for (std::int64_t i = whole; i < size; ++i)
    sums[0] += a[i] * to_float(b[i]);
  for (std::int64_t width = side_by_side / 2; width > 0; width /= 2)
    for (std::int64_t j = 0; j < width; ++j)
      sums[j] += sums[j + width];
  return sums[0];
}

/// Scores become weights that add up to 1, with that of the sink if there is one.
void soften(float* scores, std::int64_t count, const float* sink) {
  float largest = *std::max_element(scores, scores + count);
  if (sink != nullptr) largest = std::max(largest, *sink);
  float sum = sink != nullptr ? std::exp(*sink - largest) : 0;
  for (std::int64_t i = 0; i < count; ++i)
    sum += scores[i] = std::exp(scores[i] - largest);
  for (std::int64_t i = 0; i < count; ++i)
    scores[i] /= sum;
}

/// The query heads of one text that share a key head, so that keys and values are read once.
template <class T>
void attend_group(const TokenAttention<T>& args, std::int64_t i_text, std::int64_t key_head) {
  const auto& text = args.texts[static_cast<std::size_t>(i_text)];
  const std::int64_t size = args.head_size, shared = args.heads / args.key_heads;
  const std::int64_t stride = 2 * args.key_heads * size, count = text.last - text.first;
  thread_local std::vector<float> memory;
  memory.assign(static_cast<std::size_t>(shared * (2 * size + count)), 0.0f);
  float *q = memory.data(), *sums = q + shared * size, *scores = sums + shared * size;
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
  const std::int64_t first_channel = key_head * shared * size;
  for (std::int64_t i = 0; i < shared * size; ++i)
    q[i] = scale * to_float(args.q[i_text * args.q_stride + first_channel + i]);
  const T* keys = text.kept + text.first * stride + key_head * size;
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t head = 0; head < shared; ++head)
      scores[head * count + t] = dot(q + head * size, keys + t * stride, size);
  for (std::int64_t head = 0; head < shared; ++head)
    soften(scores + head * count, count,
           args.sinks != nullptr ? args.sinks + key_head * shared + head : nullptr);
  const T* values = keys + args.key_heads * size;
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t head = 0; head < shared; ++head) {
      const float weight = scores[head * count + t];
      float* sum = sums + head * size;
      const T* value = values + t * stride;
      for (std::int64_t i = 0; i < size; ++i)
        sum[i] += weight * to_float(value[i]);
    }
  T* out = args.out + i_text * args.heads * size + first_channel;
  for (std::int64_t i = 0; i < shared * size; ++i)
    out[i] = round_to<T>(sums[i]);
}

}  // namespace

template <class T>
void attend_tokens(const TokenAttention<T>& args) {
  const std::int64_t groups = std::ssize(args.texts) * args.key_heads;
  launch(groups, 1, [&args](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i)
      attend_group(args, i / args.key_heads, i % args.key_heads);
  });
}

template void attend_tokens(const TokenAttention<float>&);
template void attend_tokens(const TokenAttention<bf16>&);

}  // namespace finetune::kernels
