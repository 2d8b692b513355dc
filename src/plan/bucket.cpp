// SPDX-License-Identifier: Apache-2.0
#include "plan/bucket.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "core/error.hpp"

namespace finetune::plan {
namespace {

model::ParameterTable by_part(model::ParameterTable table) {
  // Sorted by unit, then part: the order of the forward pass stays.
  std::map<std::pair<int, int>, int> new_unit;
  std::map<int, int> parts_of;
  for (const model::Parameter& row : table.rows) {
    if (new_unit.emplace(std::pair{row.unit, row.part}, 0).second) ++parts_of[row.unit];
  }
  std::vector<std::string> units;
  for (auto& [key, index] : new_unit) {
    const std::string& name = table.units.at(static_cast<std::size_t>(key.first));
    index = static_cast<int>(units.size());
    units.push_back(parts_of[key.first] == 1 ? name : fmt::format("{}.part{}", name, key.second));
  }
  for (model::Parameter& row : table.rows) {
    row.unit = new_unit.at({row.unit, row.part});
    row.part = 0;
  }
  table.units = std::move(units);
  return table;
}

}  // namespace

model::ParameterTable regroup(model::ParameterTable table, const std::string& bucket) {
  if (bucket == "BLOCK") return table;
  if (bucket == "LAYER") return by_part(std::move(table));
  core::check(bucket == "NONE", "a bucket is one of the deck's choices");
  for (model::Parameter& row : table.rows)
    row.unit = 0;
  table.units = {"model"};
  return table;
}

}  // namespace finetune::plan
