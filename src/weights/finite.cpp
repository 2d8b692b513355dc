// SPDX-License-Identifier: Apache-2.0
#include "weights/finite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "weights/detail/names.hpp"

namespace finetune::weights {
namespace {

constexpr std::size_t block = 4096;

/// Sums that a compiler computes many at a time: 0 times what is not finite is NaN.
bool are_finite(std::span<const float> values) {
  float sum = 0;
  for (const float value : values)
    sum += value * 0.0f;
  return sum == 0.0f;
}

bool is_floating(core::DType dtype) {
  return dtype == core::DType::f32 || dtype == core::DType::bf16 || dtype == core::DType::f16 ||
         dtype == core::DType::f64;
}

}  // namespace

std::optional<std::size_t> find_not_finite(std::span<const float> values) {
  for (std::size_t first = 0; first < values.size(); first += block) {
    const auto piece = values.subspan(first, std::min(block, values.size() - first));
    if (are_finite(piece)) continue;
    for (std::size_t i = 0; i < piece.size(); ++i)
      if (!std::isfinite(piece[i])) return first + i;
  }
  return std::nullopt;
}

void refuse_not_finite(const ModelFiles& files, std::string_view name,
                       std::span<const std::int64_t> shape, std::int64_t element, float value) {
  const auto where = files.contains(name) ? files.file_of(name) : files.folder();
  core::fail(
      core::ErrorKind::input,
      {where.string(),
       fmt::format("tensor {} holds {} at element {} of {}", in_quotes(name),
                   std::isnan(value) ? "nan" : fmt::format("{}", value), element,
                   shape_text(std::vector(shape.begin(), shape.end()))),
       "no loss is a number with such a weight, whatever the learning rate",
       "Copy or download the model again, or save it anew from a run that did not diverge."});
}

void require_finite(const ModelFiles& files, const std::string& name) {
  constexpr std::int64_t piece = std::int64_t{1} << 20;
  const ModelFiles::Entry& entry = files.entry(name);
  if (!is_floating(entry.dtype)) return;
  const std::int64_t count = core::num_elements(entry.shape);
  std::vector<float> values;
  for (std::int64_t first = 0; first < count; first += piece) {
    values.resize(static_cast<std::size_t>(std::min(piece, count - first)));
    files.read({.name = name,
                .shape = entry.shape,
                .dtype = core::DType::f32,
                .offset = first,
                .count = std::ssize(values)},
               std::as_writable_bytes(std::span(values)));
    if (const auto found = find_not_finite(values))
      refuse_not_finite(files, name, entry.shape, first + static_cast<std::int64_t>(*found),
                        values[*found]);
  }
}

}  // namespace finetune::weights
