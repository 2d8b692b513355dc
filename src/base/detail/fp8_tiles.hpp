#pragma once
// SPDX-License-Identifier: Apache-2.0
// What shares a scale in a matrix in FP8, as files have it.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace finetune::base {

/// Tiles of rows x columns elements of a matrix [out, in], in rows of tiles; the last ones may be
/// smaller.
struct Fp8Tiles {
  std::int64_t inputs = 0;  ///< of the matrix
  std::int64_t rows = 0, columns = 0;

  /// Tiles next to each other.
  std::int64_t across() const { return (inputs + columns - 1) / columns; }
  /// Rows of tiles in so many rows of the matrix.
  std::int64_t down(std::int64_t outputs) const { return (outputs + rows - 1) / rows; }

  /// Calls f(number of a tile, place behind `first`, elements) for the runs of elements
  /// [first, first + count) that lie in one row and tile.
  template <typename F>
  void for_each_run(std::int64_t first, std::int64_t count, const F& f) const {
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t row = (first + done) / inputs, column = (first + done) % inputs;
      const std::int64_t end = std::min(inputs, (column / columns + 1) * columns);
      const std::int64_t length = std::min(count - done, end - column);
      f(static_cast<std::size_t>(row / rows * across() + column / columns),
        static_cast<std::size_t>(done), static_cast<std::size_t>(length));
      done += length;
    }
  }
};

}  // namespace finetune::base
