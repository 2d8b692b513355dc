#pragma once
// SPDX-License-Identifier: Apache-2.0
// Reference numbers under tests/golden, made with transformers and torch in fp32.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/folders.hpp"
#include "support/golden_models.hpp"
#include "weights/model_files.hpp"

namespace finetune::tests {

/// A file or folder of tests/golden; a folder of models comes with its weights.
inline std::filesystem::path golden(const std::string& name) {
  constexpr std::string_view models = "models/";
  if (name.starts_with(models)) return golden_model(name.substr(models.size()));
  return source_folder() / "tests/golden" / name;
}

/// Elements [offset, offset + count) of a tensor in a golden file; all of it by default.
template <typename T>
std::vector<T> read_golden(const weights::ModelFiles& files, const std::string& name,
                           std::int64_t offset = 0, std::int64_t count = -1) {
  const auto& entry = files.entry(name);
  const core::DType dtype = sizeof(T) == 8 ? core::DType::i64 : core::DType::f32;
  if (count < 0) count = core::num_elements(entry.shape);
  std::vector<T> values(static_cast<std::size_t>(count));
  files.read({.name = name, .shape = entry.shape, .dtype = dtype, .offset = offset, .count = count},
             std::as_writable_bytes(std::span(values)));
  return values;
}

inline double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    // A NaN must fail a comparison, not vanish in a maximum.
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

inline double largest_magnitude(std::span<const float> values) {
  double largest = 0;
  for (const float value : values)
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  return largest;
}

}  // namespace finetune::tests
