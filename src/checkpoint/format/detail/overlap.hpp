#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which elements a stored and a wanted box of a tensor have in common, and
// where they lie in both.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/tensor_slice.hpp"

namespace finetune::checkpoint {

/// Dims that a stored tensor may have.
inline constexpr std::size_t largest_rank = 8;

/// `num` rows of `length` elements, each row consecutive in both boxes. The first row begins at
/// elements `stored` and `wanted`, every further one a step later.
struct Rows {
  std::int64_t stored = 0;
  std::int64_t wanted = 0;
  std::int64_t length = 0;
  std::int64_t num = 1;
  std::int64_t stored_step = 0;
  std::int64_t wanted_step = 0;
};

/// The elements that lie in both of two boxes of a tensor, numbered in row-major order, which is
/// their order in both. An element's place in a box is its number in the row-major order of that
/// box. No function takes longer where the boxes are larger, except for_each_rows.
class Overlap {
 public:
  /// Boxes of one tensor of at most largest_rank dims.
  Overlap(const core::Box& stored, const core::Box& wanted);

  std::int64_t count() const { return count_; }

  /// Places of element `i`.
  std::int64_t stored(std::int64_t i) const { return place(i, &Dim::stored_step, stored_begin_); }
  std::int64_t wanted(std::int64_t i) const { return place(i, &Dim::wanted_step, wanted_begin_); }

  /// How many elements have a place before `place`.
  std::int64_t before_stored(std::int64_t place) const {
    return before(place - stored_begin_, &Dim::stored_step);
  }
  std::int64_t before_wanted(std::int64_t place) const {
    return before(place - wanted_begin_, &Dim::wanted_step);
  }

  /// Whether elements [first, last), at least one, follow each other in both boxes.
  bool is_run(std::int64_t first, std::int64_t last) const {
    const std::int64_t row = dims_[num_dims_ - 1].size;
    return first / row == (last - 1) / row;
  }

  /// Calls f(Rows) for elements [first, last), in order; as many rows at once as have equal steps.
  template <typename F>
  void for_each_rows(std::int64_t first, std::int64_t last, F&& f) const {
    const Dim& row = dims_[num_dims_ - 1];
    const Dim column = num_dims_ > 1 ? dims_[num_dims_ - 2] : Dim{1, 0, 0};
    while (first < last) {
      Rows rows{stored(first), wanted(first), row.size, 1, column.stored_step, column.wanted_step};
      const std::int64_t in_row = first % row.size;
      const std::int64_t left = last - first;
      if (in_row > 0 || left < row.size) {
        rows.length = std::min(row.size - in_row, left);
      } else {
        rows.num = std::min(column.size - first / row.size % column.size, left / row.size);
      }
      f(rows);
      first += rows.length * rows.num;
    }
  }

 private:
  /// One dim of the common elements, after dims that need no step of their own were merged.
  struct Dim {
    std::int64_t size = 1;
    std::int64_t stored_step = 1;  ///< in places, from one index to the next
    std::int64_t wanted_step = 1;
  };

  void add_inner(const Dim& dim);
  std::int64_t place(std::int64_t i, std::int64_t Dim::*step, std::int64_t begin) const;
  std::int64_t before(std::int64_t distance, std::int64_t Dim::*step) const;

  std::array<Dim, largest_rank + 1> dims_;  ///< outermost first; the last has steps of 1
  std::size_t num_dims_ = 0;
  std::int64_t count_ = 1;
  std::int64_t stored_begin_ = 0;  ///< place of the first element
  std::int64_t wanted_begin_ = 0;
};

}  // namespace finetune::checkpoint
