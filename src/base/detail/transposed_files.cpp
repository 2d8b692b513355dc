// SPDX-License-Identifier: Apache-2.0
#include "base/detail/transposed_files.hpp"

#include <algorithm>

namespace finetune::base {

std::vector<std::int64_t> shape_in_files(const model::Parameter& row) {
  std::vector<std::int64_t> shape = row.shape;
  if (row.is_by_inputs) std::ranges::reverse(shape);
  return shape;
}

void TransposedReader::read(const model::Parameter& row, std::int64_t first,
                            std::span<float> target) {
  if (name_ != row.name) {
    name_.clear();  // until it is read
    values_.resize(static_cast<std::size_t>(row.count()));
    files_.read({.name = row.name,
                 .shape = shape_in_files(row),
                 .dtype = core::DType::f32,
                 .offset = 0,
                 .count = row.count()},
                std::as_writable_bytes(std::span(values_)));
    name_ = row.name;
  }
  const std::int64_t outputs = row.shape[0], inputs = row.shape[1];
  for (float& value : target) {
    const std::int64_t output = first / inputs, input = first % inputs;
    value = values_[static_cast<std::size_t>(input * outputs + output)];
    ++first;
  }
}

}  // namespace finetune::base
