// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.hpp"

#include <ATen/Parallel.h>

#include "core/error.hpp"
#include "kernels/detail/attention_tiles.hpp"

namespace finetune::kernels {
namespace {

using namespace attention_tiles;

/// One head's softmax and product with values; what a thread has for itself.
class Forward {
 public:
  explicit Forward(const CausalAttention<bf16>& args)
      : args_(args),
        size_(args.shape.head_size),
        area_(tile * size_),
        keys_(num_tiles(args.shape) * area_),
        values_(num_tiles(args.shape) * area_),
        rows_(area_),
        scores_(tile * tiles_at_once * tile),
        weights_(tile * tile),
        sum_(area_) {}

  void head(int64_t sample, int64_t head) {
    const CausalShape& shape = args_.shape;
    const int64_t kv_head = head / (shape.num_heads / shape.num_kv_heads);
    for (int64_t i = 0; i < num_tiles(shape); ++i) {
      load(args_.k, sample, kv_head, i, shape, rows_ + 0);
      pair_columns(rows_ + 0, size_, keys_ + i * area_);
      load(args_.v, sample, kv_head, i, shape, rows_ + 0);
      pair_rows(rows_ + 0, tile, size_, values_ + i * area_);
    }
    for (int64_t i = 0; i < num_tiles(shape); ++i) {
      load(args_.q, sample, head, i, shape, rows_ + 0);
      queries(i);
      store(sample, head, i);
    }
  }

 private:
  void queries(int64_t i) {
    std::fill(largest_, largest_ + tile, -infinity);
    std::fill(total_, total_ + tile, 0.0f);
    for (int64_t first = 0; first <= i; first += tiles_at_once) {
      const int64_t count = std::min(tiles_at_once, i + 1 - first);
      for (int64_t j = 0; j < count; ++j)
        multiply(tile, tile, size_, rows_ + 0, keys_ + (first + j) * area_, scores_ + j * tile,
                 row_size, false);
      for (int64_t row = 0; row < tile; ++row)
        softmax(row, count * tile, first + count - 1 == i, first > 0);
      for (int64_t j = 0; j < count; ++j) {
        for (int64_t row = 0; row < tile; ++row)
          round(scores_ + (row * row_size + j * tile), weights_ + row * tile);
        multiply(tile, size_, tile, weights_ + 0, values_ + (first + j) * area_, sum_ + 0, size_,
                 first + j > 0);
      }
    }
  }

  /// Scores of one query become weights as part of the largest so far; what was summed before is
  /// brought to the same measure.
  void softmax(int64_t row, int64_t count, bool is_last, bool has_sum) {
    float* x = scores_ + row * row_size;
    if (is_last) std::fill(x + (count - tile + row + 1), x + count, -infinity);
    const float before = largest_[row];
    const float largest =
        std::max(before, scale_ * lane_max(count, [&](int64_t i) { return x[i]; }));
    const float scale = scale_;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i)
      x[i] = exp_bounded(x[i] * scale - largest);
    const float total = lane_sum<float>(count, [&](int64_t i) { return x[i]; });
    largest_[row] = largest;
    const float factor = has_sum ? exp_bounded(before - largest) : 0.0f;
    total_[row] = total_[row] * factor + total;
    if (!has_sum) return;
    float* sum = sum_ + row * size_;
#pragma GCC ivdep
    for (int64_t i = 0; i < size_; ++i)
      sum[i] *= factor;
  }

  static void round(const float* x, bf16* out) {
#pragma GCC ivdep
    for (int64_t i = 0; i < tile; ++i)
      out[i] = round_to<bf16>(x[i]);
  }

  void store(int64_t sample, int64_t head, int64_t i_tile) {
    const CausalShape& shape = args_.shape;
    const int64_t first = i_tile * tile, count = std::min(tile, shape.length - first);
    float* logsumexp = args_.logsumexp + (sample * shape.num_heads + head) * shape.length + first;
    for (int64_t row = 0; row < count; ++row) {
      bf16* out = args_.out.row(sample, head, first + row);
      const float *sum = sum_ + row * size_, factor = 1.0f / total_[row];
#pragma GCC ivdep
      for (int64_t i = 0; i < size_; ++i)
        out[i] = round_to<bf16>(sum[i] * factor);
      logsumexp[row] = largest_[row] + std::log(total_[row]);
    }
  }

  static constexpr int64_t row_size = tiles_at_once * tile;

  const CausalAttention<bf16>& args_;
  int64_t size_, area_;
  float scale_ = scale_of(args_.shape);
  Buffer<bf16> keys_, values_, rows_;
  Buffer<float> scores_;
  Buffer<bf16> weights_;
  Buffer<float> sum_;
  float largest_[tile], total_[tile];
};

/// Gradients of one key head and the query heads that share it. Scores are made again, transposed
/// (keys down, queries across): so weights and their gradients are the left sides of the products
/// that make d_v and d_k, and a query's numbers lie across.
class Backward {
 public:
  explicit Backward(const CausalAttentionBackward<bf16>& args)
      : args_(args),
        size_(args.shape.head_size),
        tiles_(num_tiles(args.shape)),
        area_(tile * size_),
        queries_across_(tiles_ * area_),
        queries_(tiles_ * area_),
        d_out_across_(tiles_ * area_),
        d_out_(tiles_ * area_),
        d_queries_across_(tiles_ * area_),
        d_keys_(tiles_ * area_),
        d_values_(tiles_ * area_),
        logsumexp_(tiles_ * tile),
        mean_(tiles_ * tile),
        d_queries_(area_),
        keys_(area_),
        keys_across_(area_),
        values_(area_),
        scores_(tile * tile),
        d_weights_(tile * tile),
        weights_(tile * tile),
        d_scores_(tile * tile),
        d_scores_paired_(tile * tile),
        rows_(area_) {}

  void kv_head(int64_t sample, int64_t kv_head) {
    const CausalShape& shape = args_.shape;
    const int64_t group = shape.num_heads / shape.num_kv_heads;
    for (int64_t i = 0; i < group; ++i)
      head(sample, kv_head, kv_head * group + i, i > 0);
    for (int64_t i = 0; i < tiles_; ++i) {
      store(d_keys_ + i * area_, args_.d_k, sample, kv_head, i);
      store(d_values_ + i * area_, args_.d_v, sample, kv_head, i);
    }
  }

 private:
  void head(int64_t sample, int64_t kv_head, int64_t head, bool adds) {
    for (int64_t i = 0; i < tiles_; ++i)
      load_queries(sample, head, i);
    for (int64_t j = 0; j < tiles_; ++j) {
      load(args_.k, sample, kv_head, j, args_.shape, keys_ + 0);
      load(args_.v, sample, kv_head, j, args_.shape, values_ + 0);
      transpose<bf16>(keys_ + 0, tile, size_, keys_across_ + 0);
      for (int64_t i = j; i < tiles_; ++i)
        pair(i, j, adds);
    }
    for (int64_t i = 0; i < tiles_; ++i) {
      transpose<float>(d_queries_across_ + i * area_, size_, tile, d_queries_ + 0);
      store(d_queries_ + 0, args_.d_q, sample, head, i);
    }
  }

  void load_queries(int64_t sample, int64_t head, int64_t i) {
    const CausalShape& shape = args_.shape;
    const int64_t first = i * tile, count = std::min(tile, shape.length - first);
    const float* logsumexp =
        args_.logsumexp + (sample * shape.num_heads + head) * shape.length + first;
    // What fills up a tile weighs nothing.
    std::fill(logsumexp_ + first, logsumexp_ + (first + tile), infinity);
    std::fill(mean_ + first, mean_ + (first + tile), 0.0f);
    std::copy(logsumexp, logsumexp + count, logsumexp_ + first);
    for (int64_t row = 0; row < count; ++row) {
      const bf16 *d = args_.d_out.row(sample, head, first + row),
                 *out = args_.out.row(sample, head, first + row);
      *(mean_ + (first + row)) =
          lane_sum<float>(size_, [&](int64_t k) { return to_float(d[k]) * to_float(out[k]); });
    }
    load(args_.q, sample, head, i, shape, rows_ + 0);
    pair_columns(rows_ + 0, size_, queries_across_ + i * area_);
    pair_rows(rows_ + 0, tile, size_, queries_ + i * area_);
    load(args_.d_out, sample, head, i, shape, rows_ + 0);
    pair_columns(rows_ + 0, size_, d_out_across_ + i * area_);
    pair_rows(rows_ + 0, tile, size_, d_out_ + i * area_);
  }

  /// Queries of tile i and keys of tile j.
  void pair(int64_t i, int64_t j, bool adds) {
    multiply(tile, tile, size_, keys_ + 0, queries_across_ + i * area_, scores_ + 0, tile, false);
    multiply(tile, tile, size_, values_ + 0, d_out_across_ + i * area_, d_weights_ + 0, tile,
             false);
    const float *logsumexp = logsumexp_ + i * tile, *mean = mean_ + i * tile;
    const float scale = scale_;
    for (int64_t key = 0; key < tile; ++key) {
      const float *s = scores_ + key * tile, *d = d_weights_ + key * tile;
      bf16 *weights = weights_ + key * tile, *d_scores = d_scores_ + key * tile;
      const int64_t hidden = i == j ? key : 0;
#pragma GCC ivdep
      for (int64_t query = 0; query < tile; ++query) {
        const float seen = query < hidden ? 0.0f : exp_bounded(s[query] * scale - logsumexp[query]);
        weights[query] = round_to<bf16>(seen);
        d_scores[query] = round_to<bf16>(seen * (d[query] - mean[query]) * scale);
      }
    }
    pair_rows(d_scores_ + 0, tile, tile, d_scores_paired_ + 0);
    multiply(tile, size_, tile, weights_ + 0, d_out_ + i * area_, d_values_ + j * area_, size_,
             adds || i > j);
    multiply(tile, size_, tile, d_scores_ + 0, queries_ + i * area_, d_keys_ + j * area_, size_,
             adds || i > j);
    multiply(size_, tile, tile, keys_across_ + 0, d_scores_paired_ + 0,
             d_queries_across_ + i * area_, tile, j > 0);
  }

  void store(const float* sum, const Heads<bf16>& to, int64_t sample, int64_t head,
             int64_t i_tile) {
    const int64_t first = i_tile * tile, count = std::min(tile, args_.shape.length - first);
    for (int64_t row = 0; row < count; ++row) {
      bf16* out = to.row(sample, head, first + row);
#pragma GCC ivdep
      for (int64_t i = 0; i < size_; ++i)
        out[i] = round_to<bf16>(sum[row * size_ + i]);
    }
  }

  const CausalAttentionBackward<bf16>& args_;
  int64_t size_, tiles_, area_;
  float scale_ = scale_of(args_.shape);
  // Of all tiles. "Across": tokens, or their pairs, lie in a row.
  Buffer<bf16> queries_across_, queries_, d_out_across_, d_out_;
  Buffer<float> d_queries_across_, d_keys_, d_values_, logsumexp_, mean_;
  // Of one.
  Buffer<float> d_queries_;
  Buffer<bf16> keys_, keys_across_, values_;
  Buffer<float> scores_, d_weights_;
  Buffer<bf16> weights_, d_scores_, d_scores_paired_, rows_;
};

/// Calls f(worker, sample, head) for each of `num_heads` heads of each sample, with a worker a
/// thread.
template <class Worker, class Args, class F>
void for_heads(const Args& args, int64_t num_heads, const F& f) {
  core::check(has_causal_attention(args.shape), "causal_attention: not here, or not this shape");
  at::parallel_for(0, args.shape.num_samples * num_heads, 1, [&](int64_t first, int64_t last) {
    Worker worker(args);
    for (int64_t i = first; i < last; ++i)
      f(worker, i / num_heads, i % num_heads);
    at::native::cpublas::brgemm_release();
  });
}

}  // namespace

bool has_causal_attention(const CausalShape& shape) {
  static const bool has_products = probe();
  return has_products && shape.keys() == shape.length && shape.window == 0 && shape.head_size > 0 &&
         shape.head_size % 16 == 0 && shape.length > 0 &&
         num_tiles(shape) * tile * shape.head_size <= most_elements && shape.num_kv_heads > 0 &&
         shape.num_heads % shape.num_kv_heads == 0;
}

void causal_attention(const CausalAttention<bf16>& args) {
  for_heads<Forward>(args, args.shape.num_heads, [](Forward& worker, int64_t sample, int64_t head) {
    worker.head(sample, head);
  });
}

void causal_attention_backward(const CausalAttentionBackward<bf16>& args) {
  for_heads<Backward>(
      args, args.shape.num_kv_heads,
      [](Backward& worker, int64_t sample, int64_t head) { worker.kv_head(sample, head); });
}

}  // namespace finetune::kernels
