// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/detail/whole_matrices.hpp"

#include <algorithm>

namespace finetune::plan {

std::int64_t whole_matrices_bytes(const OptimizerFootprint& optimizer,
                                  const model::ParameterTable& table, const ShardMap& shards) {
  if (!optimizer.needs_matrices) return 0;
  constexpr std::int64_t fp32_bytes = 4;
  std::int64_t unit_elements = 0, matrix_elements = 0;
  for (const UnitLayout& unit : shards.units()) {
    if (!unit.trainable) continue;
    unit_elements = std::max(unit_elements, 2 * (unit.padded_count() + unit.shard_size));
    for (const int row : unit.rows) {
      const auto& shape = table.row(row).shape;
      if (shape.size() < 2) continue;
      const std::int64_t height = shape[shape.size() - 2], width = shape.back();
      const std::int64_t least = std::min(height, width);
      matrix_elements = std::max(matrix_elements, 3 * height * width + 2 * least * least);
    }
  }
  return fp32_bytes * (unit_elements + matrix_elements);
}

}  // namespace finetune::plan
