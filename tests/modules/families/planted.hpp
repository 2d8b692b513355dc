#pragma once
// SPDX-License-Identifier: Apache-2.0
// Errors as code makes them, planted into a matrix.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace finetune::tests {

/// What was done to `matrix`, [rows, columns], with what became of it. Left out is what changes
/// nothing, as of rows that are equal.
inline std::vector<std::pair<std::string, std::vector<float>>> plant(
    const std::vector<float>& matrix, const std::vector<std::int64_t>& shape) {
  const std::int64_t rows = shape[0], columns = shape[1];
  const auto row_of = [&](std::vector<float>& m, std::int64_t i) {
    return m.begin() + i * columns;
  };
  const auto square = [&](std::int64_t i) {
    const auto row = matrix.begin() + i * columns;
    return std::inner_product(row, row + columns, row, 0.0);
  };
  std::int64_t largest = 0;
  for (std::int64_t i = 1; i < rows; ++i)
    if (square(i) > square(largest)) largest = i;

  std::vector<std::pair<std::string, std::vector<float>>> planted;
  const auto add = [&](const char* what, std::vector<float> wrong) {
    if (wrong != matrix) planted.emplace_back(what, std::move(wrong));
  };
  auto wrong = matrix;
  const std::int64_t next = (largest + 1) % rows;
  std::swap_ranges(row_of(wrong, largest), row_of(wrong, largest) + columns, row_of(wrong, next));
  add("two rows have changed places", wrong);
  wrong = matrix;
  std::swap_ranges(wrong.begin(), row_of(wrong, rows / 2), row_of(wrong, rows / 2));
  add("two halves have changed places", wrong);
  wrong = matrix;
  for (std::int64_t k = 0; k < columns; ++k)
    row_of(wrong, largest)[k] *= -1;
  add("the sign of a row has changed", wrong);
  if (rows == columns) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t k = 0; k < columns; ++k)
        wrong[static_cast<std::size_t>(i * columns + k)] =
            matrix[static_cast<std::size_t>(k * columns + i)];
    add("it is transposed", wrong);
  }
  return planted;
}

}  // namespace finetune::tests
