// SPDX-License-Identifier: Apache-2.0
#include "base/detail/read_scales.hpp"

#include <vector>

#include "base/detail/quantise.hpp"

namespace finetune::base {

void read_finite(const weights::ModelFiles& files, const std::string& name,
                 const model::Plane& plane, std::int64_t first, std::span<std::byte> target) {
  const std::int64_t count = std::ssize(target) / core::size_bytes(plane.dtype);
  files.read(
      {.name = name, .shape = plane.shape, .dtype = plane.dtype, .offset = first, .count = count},
      target);
  std::vector<float> values(static_cast<std::size_t>(count));
  core::convert(plane.dtype, target, core::DType::f32, std::as_writable_bytes(std::span(values)));
  require_finite(files.folder().string(), name, plane.shape, first, values);
}

}  // namespace finetune::base
