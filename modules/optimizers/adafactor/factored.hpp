#pragma once
// SPDX-License-Identifier: Apache-2.0
// What of a unit is factored, and where its factors lie.

#include <cstdint>
#include <vector>

#include "model/parameter_table.hpp"
#include "plan/layout/shard_map.hpp"

namespace finetune::optimizers::adafactor {

/// A parameter's matrices, of experts one of each expert; or, with a width of 1, a parameter that
/// is no matrix. They have one size, so that a step updates them together: a convolution of few
/// elements a channel would take longer than the model if each had operations of its own.
struct Factored {
  int row = 0;  ///< of the table
  std::int64_t num_matrices = 1;
  std::int64_t first_matrix = 0;  ///< among those of the unit
  std::int64_t height = 0, width = 1;
  std::int64_t first_row = 0, num_rows = 0;  ///< of each matrix: those that are trained
  bool is_matrix = true;
  /// Of its first factor among those of the unit: of rows, or of elements of what is no matrix.
  std::int64_t row_factors = 0;
  std::int64_t column_factors = 0;

  std::int64_t size() const { return height * width; }
  std::int64_t num_trained() const { return num_rows * width; }
};

/// In the order of the unit's buffer, so that factors are numbered as a checkpoint has them.
/// Throws: ErrorKind::deck where a matrix is too large for sums that are exact.
std::vector<Factored> factored_of(const model::ParameterTable& table, const plan::UnitLayout& unit);

}  // namespace finetune::optimizers::adafactor
