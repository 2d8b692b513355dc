// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/bucket.hpp"

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

/// Cuts units in which some rows are of a kind and others are not into two: they are kept in
/// different ways.
template <typename IsOfKind>
model::ParameterTable cut(model::ParameterTable table, const IsOfKind& is_of_kind,
                          const char* suffix) {
  std::map<std::pair<int, bool>, int> new_unit;
  for (const model::Parameter& row : table.rows)
    new_unit.emplace(std::pair{row.unit, is_of_kind(row)}, 0);
  std::vector<std::string> units;
  for (auto& [key, index] : new_unit) {
    const auto& [unit, is_it] = key;
    const bool is_cut = is_it && new_unit.contains({unit, false});
    index = static_cast<int>(units.size());
    units.push_back(table.units.at(static_cast<std::size_t>(unit)) + (is_cut ? suffix : ""));
  }
  for (model::Parameter& row : table.rows)
    row.unit = new_unit.at({row.unit, is_of_kind(row)});
  table.units = std::move(units);
  return table;
}

model::ParameterTable by_kind(model::ParameterTable table, ExpertUnits experts) {
  table = cut(
      std::move(table), [](const model::Parameter& row) { return row.trainable; }, ".trained");
  if (experts == ExpertUnits::with_their_block) return table;
  return cut(
      std::move(table), [](const model::Parameter& row) { return row.of_experts.has_value(); },
      ".experts");
}

model::ParameterTable as_one(model::ParameterTable table) {
  // Adapters stay apart: they are gathered once, and not with what is frozen.
  std::vector<std::string> units = {"model"};
  for (model::Parameter& row : table.rows) {
    if (row.adapts >= 0 && units.size() == 1)
      units.push_back(table.units.at(static_cast<std::size_t>(row.unit)));
    row.unit = row.adapts >= 0 ? 1 : 0;
  }
  table.units = std::move(units);
  return table;
}

}  // namespace

model::ParameterTable regroup(model::ParameterTable table, Bucket bucket, ExpertUnits experts) {
  switch (bucket) {
    case Bucket::block:
      break;
    case Bucket::layer:
      return by_kind(by_part(std::move(table)), experts);
    case Bucket::whole:
      return by_kind(as_one(std::move(table)), experts);
  }
  return by_kind(std::move(table), experts);
}

}  // namespace finetune::plan
