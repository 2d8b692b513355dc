// SPDX-License-Identifier: Apache-2.0
#include "optimizers/adafactor/factored.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "kernels/composed_adafactor.hpp"

namespace finetune::optimizers::adafactor {
namespace {

void require_exact_sums(const model::Parameter& row, std::int64_t height, std::int64_t width) {
  if (std::max(height, width) <= kernels::composed::most_factor_terms) return;
  core::fail(core::ErrorKind::deck,
             {"optimizer.name = \"adafactor\"",
              fmt::format("{} is a matrix of {} x {}", row.name, height, width),
              fmt::format("sums of squares are exact up to {} of them",
                          kernels::composed::most_factor_terms),
              "Set optimizer.name = \"adamw8bit\", or leave the matrix out with train.frozen."});
}

}  // namespace

std::vector<Factored> factored_of(const model::ParameterTable& table,
                                  const plan::UnitLayout& unit) {
  std::vector<Factored> all;
  std::int64_t num_rows = 0, num_columns = 0, num_others = 0;
  for (const int i_row : unit.rows) {
    const model::Parameter& row = table.row(i_row);
    if (row.shape.size() < 2) {
      all.push_back({.row = i_row,
                     .height = row.count(),
                     .num_rows = row.count(),
                     .is_matrix = false,
                     .row_factors = num_others});
      num_others += row.count();
      continue;
    }
    const std::int64_t width = row.shape.back(), height = row.shape[row.shape.size() - 2];
    require_exact_sums(row, height, width);
    const bool is_trained = !row.trained_rows || row.trained_rows->num > 0;
    for (std::int64_t first = 0; first < row.count(); first += height * width) {
      // Its factors, means of nothing, are kept as they begin: checkpoints have some of every row.
      num_rows += height;
      num_columns += width;
      if (!is_trained) continue;
      all.push_back({.row = i_row,
                     .first = first,
                     .height = height,
                     .width = width,
                     .num_rows = height,
                     .row_factors = num_rows - height,
                     .column_factors = num_columns - width});
      if (row.trained_rows && row.shape.size() == 2) {
        all.back().first_row = row.trained_rows->first;
        all.back().num_rows = row.trained_rows->num;
      }
    }
  }
  return all;
}

}  // namespace finetune::optimizers::adafactor
