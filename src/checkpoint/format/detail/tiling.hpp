#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether boxes hold every element of a tensor exactly once.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/format/detail/manifest.hpp"

namespace finetune::checkpoint {

/// Bounds of what a manifest may ask of find_wrong_element. Tensors are cut along the dims of at
/// most two axes (tensor and expert parallel), into as many boxes as these have ranks.
inline constexpr std::size_t most_boxes_per_tensor = 4096;
inline constexpr std::size_t most_cut_dims = 4;

/// The dims along which some box is shorter than the tensor.
std::vector<std::size_t> cut_dims(const std::vector<std::int64_t>& shape,
                                  std::span<const BoxEntry> boxes);

struct WrongElement {
  std::int64_t element = 0;  ///< in the row-major order of the tensor
  bool is_missing = false;   ///< else it is in several boxes
};

/// The first element that is not in exactly one of `boxes`, which lie inside a tensor of this shape
/// and cut it along at most most_cut_dims dims. Time and memory grow with the number of boxes, not
/// with their sizes.
std::optional<WrongElement> find_wrong_element(const std::vector<std::int64_t>& shape,
                                               std::span<const BoxEntry> boxes);

}  // namespace finetune::checkpoint
