#pragma once
// SPDX-License-Identifier: Apache-2.0
// How the tokens of a head become sides of products of panels.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

#include "kernels/attention.hpp"
#include "kernels/detail/panels.hpp"

namespace finetune::kernels::wide {

using panels::Block;
using panels::columns;
using panels::round_up;
using panels::rows;
using std::int64_t;

/// Tokens of a tile: whole panels of rows and of columns.
inline constexpr int64_t tile = widened_tile;
/// Tiles whose scores are there at one time.
inline constexpr int64_t tiles_at_once = 8;
inline constexpr float infinity = std::numeric_limits<float>::infinity();
/// Below every score, and yet a number: the difference of two is one as well.
inline constexpr float lowest = -1e30f;

static_assert(tile % rows == 0 && tile % columns == 0 && columns == widened_panel);

class Floats {
 public:
  explicit Floats(int64_t count)
      : memory_(std::make_unique_for_overwrite<float[]>(
            static_cast<std::size_t>(count + panels::slack))),
        count_(count) {}
  float* operator+(int64_t offset) const { return memory_.get() + offset; }
  void clear() { std::fill_n(memory_.get(), count_, 0.0f); }

 private:
  std::unique_ptr<float[]> memory_;
  int64_t count_;
};

/// One head of a tensor: element (token, i) at data + token * of_token + i.
template <class T>
struct Head {
  T* data;
  int64_t of_token, length, size;
};

/// With `length` tokens: those of queries, or of keys.
template <class T>
Head<T> head_of(const Heads<T>& heads, int64_t sample, int64_t head, int64_t length, int64_t size) {
  return {heads.row(sample, head, 0), heads.of_token, length, size};
}

inline int64_t num_tiles(int64_t length) {
  return (length + tile - 1) / tile;
}

/// Who sees whom. Query i stands at the token of key i + offset.
struct Sight {
  static constexpr int64_t never = std::numeric_limits<int64_t>::max();
  int64_t offset = 0, window = 0, keys = 0;
  bool is_causal = true;

  explicit Sight(const CausalShape& shape)
      : offset(shape.keys() - shape.length),
        window(shape.window),
        keys(shape.keys()),
        is_causal(shape.is_causal) {}

  /// Queries that see `key`: from the first on, before the last. Nobody sees what fills up a tile.
  int64_t first(int64_t key) const {
    if (is_causal) return key - offset;
    return key < keys ? 0 : never;
  }
  int64_t last(int64_t key) const { return window > 0 ? key - offset + window : never; }
  /// The tile behind the last whose keys a tile of queries sees, of `num_tiles`.
  int64_t end_tile(int64_t i_queries, int64_t num_tiles) const {
    if (!is_causal) return num_tiles;
    return std::min((offset + i_queries * tile + tile - 1) / tile + 1, num_tiles);
  }
};

/// Tokens down: [tokens, size] for `count` tokens from `first` on; zeros behind the head's end.
template <class T>
void load_rows(const Head<const T>& head, int64_t first, int64_t count, float* out) {
  const int64_t there = std::clamp<int64_t>(head.length - first, 0, count);
  for (int64_t i = 0; i < there; ++i) {
    const T* from = head.data + (first + i) * head.of_token;
    float* row = out + i * head.size;
#pragma GCC ivdep
    for (int64_t k = 0; k < head.size; ++k)
      row[k] = to_float(from[k]);
  }
  std::fill(out + there * head.size, out + count * head.size, 0.0f);
}

/// As a right side with tokens across: panels of 16 tokens, channels down.
template <class T>
void load_across(const Head<const T>& head, int64_t first, int64_t count, float* out) {
  const int64_t there = std::clamp<int64_t>(head.length - first, 0, count);
  panels::pack<columns>(head.data + first * head.of_token, there, head.size, head.of_token, 1, out);
  std::fill(out + round_up(there, columns) * head.size, out + count * head.size, 0.0f);
}

/// As a right side with channels across: panels of 16 channels, tokens down.
template <class T>
void load_down(const Head<const T>& head, int64_t first, int64_t count, float* out) {
  const int64_t there = std::clamp<int64_t>(head.length - first, 0, count);
  for (int64_t channel = 0; channel < head.size; channel += columns, out += columns * count) {
    panels::pack<columns>(head.data + first * head.of_token + channel,
                          std::min(columns, head.size - channel), there, 1, head.of_token, out);
    std::fill(out + columns * there, out + columns * count, 0.0f);
  }
}

/// Rounds rows [tile, of_row] to the tokens of a tile.
template <class T>
void store_rows(const float* from, int64_t of_row, int64_t i_tile, const Head<T>& head) {
  const int64_t count = std::min(tile, head.length - i_tile * tile);
  for (int64_t i = 0; i < count; ++i) {
    T* out = head.data + (i_tile * tile + i) * head.of_token;
    const float* row = from + i * of_row;
#pragma GCC ivdep
    for (int64_t k = 0; k < head.size; ++k)
      out[k] = round_to<T>(row[k]);
  }
}

inline float scale_of(const CausalShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_size)));
}

/// A left side of rows that lie one after the other.
inline Block by_rows(const float* a, int64_t num_rows, int64_t inner) {
  Block block{};
  block.row_panels = num_rows / rows;
  block.inner = inner;
  block.a = a;
  block.a_panel = rows * inner;
  block.a_row = inner;
  block.a_step = 1;
  return block;
}

/// A left side that is the transpose of a matrix [inner, num_rows].
inline Block by_columns(const float* a, int64_t num_rows, int64_t inner) {
  Block block{};
  block.row_panels = num_rows / rows;
  block.inner = inner;
  block.a = a;
  block.a_panel = rows;
  block.a_row = 1;
  block.a_step = num_rows;
  return block;
}

inline void multiply(Block block, const float* b, int64_t b_panel, int64_t num_columns, float* c,
                     int64_t c_row, bool adds) {
  block.b = b;
  block.b_panel = b_panel;
  block.column_panels = num_columns / columns;
  block.c = c;
  block.c_row = c_row;
  block.adds = adds;
  panels::multiply(block);
}

}  // namespace finetune::kernels::wide
