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
  std::int64_t num_rows = 0, num_columns = 0, num_others = 0, num_matrices = 0;
  for (const int i_row : unit.rows) {
    const model::Parameter& row = table.row(i_row);
    Factored own{.row = i_row, .first_matrix = num_matrices};
    if (row.shape.size() < 2) {
      own.height = own.num_rows = row.count();
      own.is_matrix = false;
      own.row_factors = num_others;
      num_others += row.count();
    } else {
      own.width = row.shape.back();
      own.height = own.num_rows = row.shape[row.shape.size() - 2];
      require_exact_sums(row, own.height, own.width);
      own.num_matrices = row.count() / own.size();
      own.row_factors = num_rows;
      own.column_factors = num_columns;
      num_rows += own.num_matrices * own.height;
      num_columns += own.num_matrices * own.width;
    }
    if (own.is_matrix && row.trained_rows && row.shape.size() == 2) {
      own.first_row = row.trained_rows->first;
      own.num_rows = row.trained_rows->num;
    }
    // Factors of nothing are kept as they begin: a checkpoint has some of every row.
    if (own.num_rows == 0) continue;
    num_matrices += own.num_matrices;
    all.push_back(own);
  }
  return all;
}

}  // namespace finetune::optimizers::adafactor
