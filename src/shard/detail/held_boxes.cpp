// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/held_boxes.hpp"

#include <utility>

#include "core/error.hpp"

namespace finetune::shard {

std::vector<core::Box> held_boxes(const model::Parameter& parameter, const AxisPlace& place) {
  core::check(place.index >= 0 && place.index < place.size, "a place is one of its axis");
  const core::Box whole = core::whole_box(parameter.shape);
  if (!parameter.split || parameter.split->axis != place.axis) return {whole};
  const std::size_t dim = parameter.split->dim;
  std::vector<std::int64_t> matrices = parameter.split->matrices;
  if (matrices.empty()) matrices = {parameter.shape.at(dim)};
  std::vector<core::Box> boxes;
  std::int64_t before = 0;
  for (const std::int64_t size : matrices) {
    const std::int64_t first = size * place.index / place.size;
    const std::int64_t last = size * (place.index + 1) / place.size;
    core::Box box = whole;
    box.begin[dim] = before + first;
    box.extent[dim] = last - first;
    if (box.num_elements() > 0) boxes.push_back(std::move(box));
    before += size;
  }
  core::check(before == parameter.shape[dim], "the matrices of a tensor fill its split dim");
  return boxes;
}

}  // namespace finetune::shard
