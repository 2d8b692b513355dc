// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/detail/tiling.hpp"

#include <algorithm>
#include <array>

namespace finetune::checkpoint {
namespace {

/// A change of how many boxes hold the elements from a corner on.
struct Corner {
  std::array<std::int64_t, most_cut_dims> at{};
  int change = 0;
};

/// The corners of `box` along `dims`. A box adds its change from its beginning on and takes it back
/// behind its end, in each dim: the differences of its indicator function.
void add_corners(const core::Box& box, const std::vector<std::size_t>& dims, int change,
                 std::vector<Corner>& corners) {
  for (unsigned ends = 0; ends < 1u << dims.size(); ++ends) {
    Corner corner{.change = change};
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const bool is_end = (ends >> i & 1u) != 0;
      corner.at[i] = box.begin[dims[i]] + (is_end ? box.extent[dims[i]] : 0);
      if (is_end) corner.change = -corner.change;
    }
    corners.push_back(corner);
  }
}

}  // namespace

std::vector<std::size_t> cut_dims(const std::vector<std::int64_t>& shape,
                                  std::span<const BoxEntry> boxes) {
  std::vector<std::size_t> dims;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (std::ranges::any_of(boxes, [&](const BoxEntry& b) { return b.box.extent[d] != shape[d]; }))
      dims.push_back(d);
  }
  return dims;
}

// Elements are held once each if and only if the boxes' indicator functions add up to that of the
// whole, and so do their differences, which are zero but for corners. Where the sums differ first,
// in row-major order, the functions do: all that comes before it is equal.
std::optional<WrongElement> find_wrong_element(const std::vector<std::int64_t>& shape,
                                               std::span<const BoxEntry> boxes) {
  const core::Box whole = core::whole_box(shape);
  if (whole.num_elements() == 0) return std::nullopt;
  const std::vector<std::size_t> dims = cut_dims(shape, boxes);
  std::vector<Corner> corners;
  add_corners(whole, dims, -1, corners);
  for (const BoxEntry& entry : boxes)
    add_corners(entry.box, dims, 1, corners);
  std::ranges::sort(corners, {}, &Corner::at);
  for (std::size_t first = 0, last = 0; first < corners.size(); first = last) {
    std::int64_t change = 0;
    for (; last < corners.size() && corners[last].at == corners[first].at; ++last)
      change += corners[last].change;
    if (change == 0) continue;
    std::int64_t element = 0;
    for (std::size_t d = 0, i = 0; d < shape.size(); ++d) {
      const bool is_cut = i < dims.size() && dims[i] == d;
      element = element * shape[d] + (is_cut ? corners[first].at[i++] : 0);
    }
    return WrongElement{element, change < 0};
  }
  return std::nullopt;
}

}  // namespace finetune::checkpoint
