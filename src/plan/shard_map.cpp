// SPDX-License-Identifier: Apache-2.0
#include "plan/shard_map.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace finetune::plan {

ShardMap::ShardMap(const model::ParameterTable& table, std::int64_t num_shards)
    : num_shards_(num_shards) {
  core::check(num_shards >= 1, "a shard group has at least one rank");
  for (const std::string& name : table.units) {
    units_.emplace_back().name = name;
  }
  for (int row = 0; row < static_cast<int>(table.rows.size()); ++row) {
    const model::Parameter& parameter = table.rows[static_cast<std::size_t>(row)];
    UnitLayout& unit = units_.at(static_cast<std::size_t>(parameter.unit));
    unit_of_row_.push_back(parameter.unit);
    offset_of_row_.push_back(unit.count);
    unit.rows.push_back(row);
    unit.offsets.push_back(unit.count);
    unit.count += parameter.count();
  }
  for (UnitLayout& unit : units_)
    unit.shard_size = (unit.count + num_shards - 1) / num_shards;
}

std::vector<ShardSlice> ShardMap::slices(int unit, std::int64_t i_shard) const {
  const UnitLayout& layout = units_.at(static_cast<std::size_t>(unit));
  const std::int64_t first = i_shard * layout.shard_size;
  const std::int64_t last = std::min(first + layout.shard_size, layout.count);
  std::vector<ShardSlice> slices;
  for (std::size_t i = 0; i < layout.rows.size(); ++i) {
    const std::int64_t row_first = layout.offsets[i];
    const std::int64_t row_last = i + 1 < layout.rows.size() ? layout.offsets[i + 1] : layout.count;
    const std::int64_t begin = std::max(first, row_first);
    const std::int64_t end = std::min(last, row_last);
    if (begin < end)
      slices.push_back({layout.rows[i], begin - row_first, begin - first, end - begin});
  }
  return slices;
}

std::int64_t ShardMap::shard_elements() const {
  std::int64_t sum = 0;
  for (const UnitLayout& unit : units_)
    sum += unit.shard_size;
  return sum;
}

std::int64_t ShardMap::largest_unit() const {
  std::int64_t largest = 0;
  for (const UnitLayout& unit : units_)
    largest = std::max(largest, unit.padded_count(num_shards_));
  return largest;
}

}  // namespace finetune::plan
