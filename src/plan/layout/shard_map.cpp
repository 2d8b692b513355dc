// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/shard_map.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "model/packing.hpp"

namespace finetune::plan {
namespace {

/// Bytes at which planes and shards of frozen units begin: whole elements of every dtype, and a
/// cache line.
constexpr std::int64_t alignment_bytes = 64;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::int64_t elements_in_common(const model::ParameterTable& table, const UnitLayout& unit) {
  std::int64_t elements = 0;
  if (!unit.trainable) return elements;
  for (const int i : unit.rows) {
    const auto& held = table.row(i).held;
    if (held && held->num_holders > 1) elements += core::num_elements(held->shape);
  }
  return elements;
}

ShardMap::ShardMap(const model::ParameterTable& table, std::int64_t num_shards,
                   const ShardRules& rules)
    : num_shards_(num_shards), rules_(rules), offset_of_row_(table.rows.size(), 0) {
  core::check(num_shards >= 1 && num_shards % rules.ep == 0,
              "a shard group has at least one rank, and those that share experts divide it");
  for (const std::string& name : table.units)
    units_.emplace_back().name = name;
  for (int row = 0; row < static_cast<int>(table.rows.size()); ++row)
    add_row(table.row(row), row);
  for (UnitLayout& unit : units_) {
    if (!unit.trainable) lay_out_frozen(table, unit);
    unit.num_shards = unit.is_of_experts ? num_shards / rules.ep : num_shards;
    const std::int64_t share = (unit.count + unit.num_shards - 1) / unit.num_shards;
    unit.shard_size = round_up(share, unit.trainable ? rules.block : alignment_bytes);
  }
}

void ShardMap::add_row(const model::Parameter& parameter, int row) {
  UnitLayout& unit = units_.at(static_cast<std::size_t>(parameter.unit));
  if (unit.rows.empty()) {
    unit.trainable = parameter.trainable;
    unit.stays_gathered = parameter.adapts >= 0;
    unit.is_of_experts = is_of_experts(parameter);
  }
  core::check(
      unit.trainable == parameter.trainable && unit.is_of_experts == is_of_experts(parameter),
      "the rows of a unit are of one kind");
  unit_of_row_.push_back(parameter.unit);
  unit.rows.push_back(row);
  if (!unit.trainable) return;
  unit.in_8_bits = unit.in_8_bits || !parameter.published.is_dense();
  offset_of_row_[static_cast<std::size_t>(row)] = unit.count;
  unit.offsets.push_back(unit.count);
  unit.count += parameter.count();
}

void ShardMap::lay_out_frozen(const model::ParameterTable& table, UnitLayout& unit) {
  using Kind = model::Packing::Kind;
  const auto add = [&](int row, int i, const model::Plane& plane) {
    if (i == 0) offset_of_row_[static_cast<std::size_t>(row)] = unit.count;
    unit.planes.push_back({row, i, plane.dtype, plane.count(), unit.count});
    unit.count += plane.size_bytes();
  };
  const auto for_each_plane = [&](auto is_meant, const auto& f) {
    for (const int row : unit.rows) {
      if (!is_meant(table.row(row))) continue;
      int i = 0;
      for (const model::Plane& plane : model::planes(table.row(row), rules_.compute))
        f(row, i++, plane);
    }
  };
  // Constants may be of another dtype than their neighbours, which are read as one.
  const auto is_dense = [](const model::Parameter& row) {
    return row.packing.is_dense() && !row.is_constant;
  };
  const auto is_fp8 = [](const model::Parameter& row) { return row.packing.kind == Kind::fp8; };
  const auto is_other = [&](const model::Parameter& row) { return !is_dense(row) && !is_fp8(row); };
  for_each_plane(is_dense, add);
  // Values of neighbours follow each other, and so do their scales: products read them as one.
  for (const int kept : {model::fp8_plane::values, model::fp8_plane::scales}) {
    bool is_first = true;
    for_each_plane(is_fp8, [&](int row, int i, const model::Plane& plane) {
      if (i != kept) return;
      if (is_first || i == model::fp8_plane::values)
        unit.count = round_up(unit.count, alignment_bytes);
      is_first = false;
      add(row, i, plane);
    });
  }
  for_each_plane(is_other, [&](int row, int i, const model::Plane& plane) {
    unit.count = round_up(unit.count, alignment_bytes);
    add(row, i, plane);
  });
}

std::vector<ShardSlice> ShardMap::slices(int unit, std::int64_t i_shard) const {
  const UnitLayout& layout = units_.at(static_cast<std::size_t>(unit));
  std::vector<ShardSlice> slices;
  if (!layout.trainable) return slices;
  const std::int64_t first = i_shard * layout.shard_size;
  const std::int64_t last = std::min(first + layout.shard_size, layout.count);
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

std::vector<FrozenSlice> ShardMap::frozen_slices(int unit, std::int64_t i_shard) const {
  const UnitLayout& layout = units_.at(static_cast<std::size_t>(unit));
  std::vector<FrozenSlice> slices;
  const std::int64_t first = i_shard * layout.shard_size;
  const std::int64_t last = first + layout.shard_size;
  for (const FrozenPlane& plane : layout.planes) {
    const std::int64_t bytes = core::size_bytes(plane.dtype);
    const std::int64_t begin = std::max(first, plane.offset_bytes);
    const std::int64_t end = std::min(last, plane.offset_bytes + plane.count * bytes);
    if (begin >= end) continue;
    // Planes and shards begin at multiples of every element's size.
    slices.push_back(
        {plane, (begin - plane.offset_bytes) / bytes, (end - begin) / bytes, begin - first});
  }
  return slices;
}

std::vector<FrozenPlane> ShardMap::planes_of(int row) const {
  std::vector<FrozenPlane> planes;
  for (const FrozenPlane& plane : unit(unit_of(row)).planes)
    if (plane.row == row) planes.push_back(plane);
  return planes;
}

std::int64_t ShardMap::shard_elements() const {
  std::int64_t sum = 0;
  for (const UnitLayout& unit : units_)
    sum += unit.trainable ? unit.shard_size : 0;
  return sum;
}

std::int64_t ShardMap::frozen_shard_bytes() const {
  std::int64_t sum = 0;
  for (const UnitLayout& unit : units_)
    sum += unit.trainable ? 0 : unit.shard_size;
  return sum;
}

std::int64_t ShardMap::largest_unit() const {
  std::int64_t largest = 0;
  for (const UnitLayout& unit : units_)
    if (unit.trainable) largest = std::max(largest, unit.padded_count());
  return largest;
}

bool has_same_frozen(const ShardMap& one, const ShardMap& other) {
  const auto frozen = [](const ShardMap& map) {
    std::vector<const UnitLayout*> units;
    for (const UnitLayout& unit : map.units())
      if (!unit.trainable && !unit.rows.empty()) units.push_back(&unit);
    return units;
  };
  return std::ranges::equal(
      frozen(one), frozen(other), [](const UnitLayout* a, const UnitLayout* b) {
        return a->rows == b->rows && a->planes == b->planes && a->shard_size == b->shard_size &&
               a->num_shards == b->num_shards;
      });
}

}  // namespace finetune::plan
