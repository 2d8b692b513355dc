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

/// Positions between what is computed with and what is fetched from memory meanwhile: processors
/// fetch ahead by themselves only what lies side by side.
constexpr std::int64_t ahead = 4;

template <class T>
void prefetch(const T* from, std::int64_t count) {
  constexpr std::int64_t line = 64 / sizeof(T);
  for (std::int64_t i = 0; i < count; i += line)
    __builtin_prefetch(from + i);
}

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

/// The query heads of one text that attend to `num_keys` key heads from `first_key` on. The heads
/// of a position lie side by side, so that what is kept is read from front to back, once.
template <class T>
void attend_heads(const TokenAttention<T>& args, std::int64_t i_text, std::int64_t first_key,
                  std::int64_t num_keys) {
  const auto& text = args.texts[static_cast<std::size_t>(i_text)];
  const std::int64_t size = args.head_size, shared = args.heads / args.key_heads;
  const std::int64_t heads = num_keys * shared, first_head = first_key * shared;
  const std::int64_t stride = 2 * args.key_heads * size, count = text.last - text.first;
  thread_local std::vector<float> memory;
  memory.assign(static_cast<std::size_t>(heads * (2 * size + count)), 0.0f);
  float *q = memory.data(), *sums = q + heads * size, *scores = sums + heads * size;
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
  for (std::int64_t i = 0; i < heads * size; ++i)
    q[i] = scale * to_float(args.q[i_text * args.q_stride + first_head * size + i]);
  const T* keys = text.kept + text.first * stride + first_key * size;
  for (std::int64_t t = 0; t < count; ++t) {
    prefetch(keys + std::min(t + ahead, count - 1) * stride, num_keys * size);
    for (std::int64_t head = 0; head < heads; ++head)
      scores[head * count + t] =
          dot(q + head * size, keys + t * stride + head / shared * size, size);
  }
  for (std::int64_t head = 0; head < heads; ++head)
    soften(scores + head * count, count,
           args.sinks != nullptr ? args.sinks + first_head + head : nullptr);
  const T* values = keys + args.key_heads * size;
  for (std::int64_t t = 0; t < count; ++t) {
    prefetch(values + std::min(t + ahead, count - 1) * stride, num_keys * size);
    for (std::int64_t head = 0; head < heads; ++head) {
      const float weight = scores[head * count + t];
      float* sum = sums + head * size;
      const T* value = values + t * stride + head / shared * size;
      for (std::int64_t i = 0; i < size; ++i)
        sum[i] += weight * to_float(value[i]);
    }
  }
  T* out = args.out + (i_text * args.heads + first_head) * size;
  for (std::int64_t i = 0; i < heads * size; ++i)
    out[i] = round_to<T>(sums[i]);
}

}  // namespace

template <class T>
void attend_tokens(const TokenAttention<T>& args) {
  // Heads of one text are shared out only where there are too few texts to keep all threads busy.
  const std::int64_t texts = std::ssize(args.texts);
  if (texts == 0) return;
  const std::int64_t threads = num_host_threads(), least_pieces = threads > 1 ? 4 * threads : 1;
  const std::int64_t wanted = std::min(args.key_heads, (least_pieces + texts - 1) / texts);
  const std::int64_t at_once = (args.key_heads + wanted - 1) / wanted;
  const std::int64_t pieces = (args.key_heads + at_once - 1) / at_once;
  launch(texts * pieces, 1, [&args, pieces, at_once](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t key_head = i % pieces * at_once;
      attend_heads(args, i / pieces, key_head, std::min(at_once, args.key_heads - key_head));
    }
  });
}

template void attend_tokens(const TokenAttention<float>&);
template void attend_tokens(const TokenAttention<bf16>&);

}  // namespace finetune::kernels
