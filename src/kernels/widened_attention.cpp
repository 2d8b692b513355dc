// SPDX-License-Identifier: Apache-2.0
// Causal attention in fp32 panels. Scores lie transposed, keys down and queries across: so a
// softmax runs along vectors of queries, and weights are a left side of every product as they lie.

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "kernels/attention.hpp"
#include "kernels/detail/widened_tiles.hpp"

namespace finetune::kernels {
namespace wide {
namespace {

/// One head's softmax and product with values; what a thread has for itself.
template <class T>
class Forward {
 public:
  explicit Forward(const CausalAttention<T>& args)
      : args_(args),
        size_(args.shape.head_size),
        padded_(round_up(size_, columns)),
        tokens_(num_tiles(args.shape.keys()) * tile),
        keys_(tokens_ * size_),
        values_(tokens_ * padded_),
        queries_(tile * size_),
        scores_(tiles_at_once * tile * tile),
        sum_(tile * padded_) {}

  void head(int64_t sample, int64_t head) {
    const CausalShape& shape = args_.shape;
    const int64_t kv_head = head / (shape.num_heads / shape.num_kv_heads);
    load_rows(head_of(args_.k, sample, kv_head, shape.keys(), size_), 0, tokens_, keys_ + 0);
    load_down(head_of(args_.v, sample, kv_head, shape.keys(), size_), 0, tokens_, values_ + 0);
    const auto q = head_of(args_.q, sample, head, shape.length, size_);
    const auto out = head_of(args_.out, sample, head, shape.length, size_);
    float* logsumexp = args_.logsumexp + (sample * shape.num_heads + head) * shape.length;
    for (int64_t i = 0; i < num_tiles(shape.length); ++i) {
      load_across(q, i * tile, tile, queries_ + 0);
      queries(i);
      const int64_t count = std::min(tile, shape.length - i * tile);
      for (int64_t row = 0; row < count; ++row) {
        float* sum = sum_ + row * padded_;
        const float factor = 1.0f / total_[row];
#pragma GCC ivdep
        for (int64_t k = 0; k < size_; ++k)
          sum[k] *= factor;
        logsumexp[i * tile + row] = largest_[row] + std::log(total_[row]);
      }
      store_rows(sum_ + 0, padded_, i, out);
    }
  }

 private:
  void queries(int64_t i) {
    std::fill(largest_, largest_ + tile, lowest);
    std::fill(total_, total_ + tile, 0.0f);
    const int64_t self = sight_.offset + i * tile;
    const int64_t begin =
        sight_.window > 0 ? std::max<int64_t>(0, self - sight_.window + 1) / tile : 0;
    const int64_t end = sight_.end_tile(i, tokens_ / tile);
    for (int64_t first = begin; first < end; first += tiles_at_once) {
      const int64_t count = std::min(tiles_at_once, end - first) * tile;
      multiply(by_rows(keys_ + first * tile * size_, count, size_), queries_ + 0, columns * size_,
               tile, scores_ + 0, tile, false);
      hide(first * tile, count, i * tile);
      softmax(count, first > begin);
      multiply(by_columns(scores_ + 0, tile, count), values_ + first * tile * columns,
               columns * tokens_, padded_, sum_ + 0, padded_, first > begin);
    }
  }

  /// Scores of keys that a query does not see.
  void hide(int64_t first_key, int64_t num_keys, int64_t first_query) {
    for (int64_t key = 0; key < num_keys; ++key) {
      float* scores = scores_ + key * tile;
      const int64_t first = sight_.first(first_key + key) - first_query;
      const int64_t last = sight_.last(first_key + key) - first_query;
      if (first > 0) std::fill(scores, scores + std::min(first, tile), -infinity);
      if (last < tile) std::fill(scores + std::max<int64_t>(last, 0), scores + tile, -infinity);
    }
  }

  /// Scores become weights as part of the largest so far; what was summed before is brought to the
  /// same measure.
  void softmax(int64_t num_keys, bool has_sum) {
    float largest[tile], factor[tile], total[tile] = {};
    std::fill(largest, largest + tile, -infinity);
    for (int64_t key = 0; key < num_keys; ++key) {
      const float* x = scores_ + key * tile;
#pragma GCC ivdep
      for (int64_t i = 0; i < tile; ++i)
        largest[i] = x[i] > largest[i] ? x[i] : largest[i];
    }
    const float scale = scale_;
    for (int64_t i = 0; i < tile; ++i) {
      largest[i] = std::max(largest_[i], scale * largest[i]);
      factor[i] = exp_bounded(largest_[i] - largest[i]);
      largest_[i] = largest[i];
    }
    for (int64_t key = 0; key < num_keys; ++key) {
      float* x = scores_ + key * tile;
#pragma GCC ivdep
      for (int64_t i = 0; i < tile; ++i) {
        x[i] = exp_bounded(x[i] * scale - largest[i]);
        total[i] += x[i];
      }
    }
    for (int64_t i = 0; i < tile; ++i)
      total_[i] = total_[i] * factor[i] + total[i];
    if (!has_sum) return;
    for (int64_t row = 0; row < tile; ++row) {
      float* sum = sum_ + row * padded_;
#pragma GCC ivdep
      for (int64_t k = 0; k < padded_; ++k)
        sum[k] *= factor[row];
    }
  }

  const CausalAttention<T>& args_;
  int64_t size_, padded_, tokens_;
  float scale_ = scale_of(args_.shape);
  Sight sight_{args_.shape};
  Floats keys_, values_, queries_, scores_, sum_;
  float largest_[tile], total_[tile];
};

/// Gradients of one key head and the query heads that share it.
template <class T>
class Backward {
 public:
  explicit Backward(const CausalAttentionBackward<T>& args)
      : args_(args),
        size_(args.shape.head_size),
        padded_(round_up(size_, columns)),
        tiles_(num_tiles(args.shape.length)),
        key_tiles_(num_tiles(args.shape.keys())),
        tokens_(tiles_ * tile),
        queries_across_(tokens_ * size_),
        queries_(tokens_ * padded_),
        d_out_across_(tokens_ * size_),
        d_out_(tokens_ * padded_),
        d_queries_(tokens_ * padded_),
        d_keys_(key_tiles_ * tile * padded_),
        d_values_(key_tiles_ * tile * padded_),
        logsumexp_(tokens_),
        mean_(tokens_),
        key_rows_(tile * size_),
        keys_(tile * padded_),
        value_rows_(tile * size_),
        weights_(tiles_at_once * tile * tile),
        d_scores_(tiles_at_once * tile * tile) {}

  void kv_head(int64_t sample, int64_t kv_head) {
    const CausalShape& shape = args_.shape;
    const int64_t group = shape.num_heads / shape.num_kv_heads;
    d_keys_.clear();
    d_values_.clear();
    for (int64_t i = 0; i < group; ++i)
      head(sample, kv_head, kv_head * group + i);
    const auto d_k = head_of(args_.d_k, sample, kv_head, shape.keys(), size_);
    const auto d_v = head_of(args_.d_v, sample, kv_head, shape.keys(), size_);
    for (int64_t i = 0; i < key_tiles_; ++i) {
      store_rows(d_keys_ + i * tile * padded_, padded_, i, d_k);
      store_rows(d_values_ + i * tile * padded_, padded_, i, d_v);
    }
  }

 private:
  void head(int64_t sample, int64_t kv_head, int64_t head) {
    const CausalShape& shape = args_.shape;
    load_queries(sample, head);
    d_queries_.clear();
    const auto k = head_of(args_.k, sample, kv_head, shape.keys(), size_);
    const auto v = head_of(args_.v, sample, kv_head, shape.keys(), size_);
    for (int64_t j = 0; j < key_tiles_; ++j) {
      load_rows(k, j * tile, tile, key_rows_ + 0);
      load_down(k, j * tile, tile, keys_ + 0);
      load_rows(v, j * tile, tile, value_rows_ + 0);
      const int64_t begin = std::max<int64_t>(0, sight_.first(j * tile)) / tile;
      const int64_t end =
          num_tiles(std::clamp<int64_t>(sight_.last(j * tile + tile - 1), 0, shape.length));
      for (int64_t i = begin; i < end; i += tiles_at_once)
        pair(i, std::min(tiles_at_once, end - i), j);
    }
    const auto d_q = head_of(args_.d_q, sample, head, shape.length, size_);
    for (int64_t i = 0; i < tiles_; ++i)
      store_rows(d_queries_ + i * tile * padded_, padded_, i, d_q);
  }

  void load_queries(int64_t sample, int64_t head) {
    const CausalShape& shape = args_.shape;
    const auto q = head_of(args_.q, sample, head, shape.length, size_);
    const auto d_out = head_of(args_.d_out, sample, head, shape.length, size_);
    const auto out = head_of(args_.out, sample, head, shape.length, size_);
    load_across(q, 0, tokens_, queries_across_ + 0);
    load_down(q, 0, tokens_, queries_ + 0);
    load_across(d_out, 0, tokens_, d_out_across_ + 0);
    load_down(d_out, 0, tokens_, d_out_ + 0);
    const float* logsumexp = args_.logsumexp + (sample * shape.num_heads + head) * shape.length;
    std::copy(logsumexp, logsumexp + shape.length, logsumexp_ + 0);
    // What fills up a tile weighs nothing.
    std::fill(logsumexp_ + shape.length, logsumexp_ + tokens_, infinity);
    std::fill(mean_ + shape.length, mean_ + tokens_, 0.0f);
    for (int64_t i = 0; i < shape.length; ++i) {
      const T *d = d_out.data + i * d_out.of_token, *x = out.data + i * out.of_token;
      *(mean_ + i) =
          lane_sum<float>(size_, [&](int64_t k) { return to_float(d[k]) * to_float(x[k]); });
    }
  }

  /// `count` tiles of queries from tile i on, and the keys of tile j.
  void pair(int64_t i, int64_t count, int64_t j) {
    const int64_t across = count * tile, first = i * tile;
    multiply(by_rows(key_rows_ + 0, tile, size_), queries_across_ + first * size_, columns * size_,
             across, weights_ + 0, across, false);
    multiply(by_rows(value_rows_ + 0, tile, size_), d_out_across_ + first * size_, columns * size_,
             across, d_scores_ + 0, across, false);
    const float *logsumexp = logsumexp_ + first, *mean = mean_ + first;
    const float scale = scale_;
    for (int64_t key = 0; key < tile; ++key) {
      float *weights = weights_ + key * across, *d = d_scores_ + key * across;
      const int64_t begin = std::clamp<int64_t>(sight_.first(j * tile + key) - first, 0, across);
      const int64_t end = std::clamp<int64_t>(sight_.last(j * tile + key) - first, begin, across);
      std::fill(weights, weights + begin, 0.0f);
      std::fill(d, d + begin, 0.0f);
#pragma GCC ivdep
      for (int64_t query = begin; query < end; ++query) {
        const float weight = exp_bounded(weights[query] * scale - logsumexp[query]);
        weights[query] = weight;
        d[query] = weight * (d[query] - mean[query]) * scale;
      }
      std::fill(weights + end, weights + across, 0.0f);
      std::fill(d + end, d + across, 0.0f);
    }
    multiply(by_rows(weights_ + 0, tile, across), d_out_ + first * columns, columns * tokens_,
             padded_, d_values_ + j * tile * padded_, padded_, true);
    multiply(by_rows(d_scores_ + 0, tile, across), queries_ + first * columns, columns * tokens_,
             padded_, d_keys_ + j * tile * padded_, padded_, true);
    multiply(by_columns(d_scores_ + 0, across, tile), keys_ + 0, columns * tile, padded_,
             d_queries_ + first * padded_, padded_, true);
  }

  const CausalAttentionBackward<T>& args_;
  int64_t size_, padded_, tiles_, key_tiles_, tokens_;
  float scale_ = scale_of(args_.shape);
  Sight sight_{args_.shape};
  // Of all tiles.
  Floats queries_across_, queries_, d_out_across_, d_out_, d_queries_, d_keys_, d_values_;
  Floats logsumexp_, mean_;
  // Of one.
  Floats key_rows_, keys_, value_rows_, weights_, d_scores_;
};

/// Calls f(worker, sample, head) for each of `num_heads` heads of each sample, with a worker per
/// thread.
template <class Worker, class Args, class F>
void for_heads(const Args& args, int64_t num_heads, const F& f) {
  core::check(has_widened_attention(args.shape), "widened_attention: not this shape");
  at::parallel_for(0, args.shape.num_samples * num_heads, 1, [&](int64_t first, int64_t last) {
    Worker worker(args);
    for (int64_t i = first; i < last; ++i)
      f(worker, i / num_heads, i % num_heads);
  });
}

}  // namespace
}  // namespace wide

bool has_widened_attention(const CausalShape& shape) {
  return shape.head_size > 0 && shape.length > 0 && shape.num_kv_heads > 0 &&
         shape.num_heads % shape.num_kv_heads == 0 &&
         (shape.is_causal ? shape.keys() >= shape.length && shape.window >= 0
                          : shape.window == 0) &&
         wide::num_tiles(shape.keys()) * wide::tile *
                 panels::round_up(shape.head_size, panels::columns) <=
             most_widened_elements;
}

template <class T>
void widened_attention(const CausalAttention<T>& args) {
  wide::for_heads<wide::Forward<T>>(
      args, args.shape.num_heads,
      [](auto& worker, std::int64_t sample, std::int64_t head) { worker.head(sample, head); });
}

template <class T>
void widened_attention_backward(const CausalAttentionBackward<T>& args) {
  wide::for_heads<wide::Backward<T>>(
      args, args.shape.num_kv_heads,
      [](auto& worker, std::int64_t sample, std::int64_t head) { worker.kv_head(sample, head); });
}

template void widened_attention<float>(const CausalAttention<float>&);
template void widened_attention<bf16>(const CausalAttention<bf16>&);
template void widened_attention<f16>(const CausalAttention<f16>&);
template void widened_attention_backward<float>(const CausalAttentionBackward<float>&);
template void widened_attention_backward<bf16>(const CausalAttentionBackward<bf16>&);
template void widened_attention_backward<f16>(const CausalAttentionBackward<f16>&);

}  // namespace finetune::kernels
