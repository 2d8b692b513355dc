// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/bucket.hpp"

#include <fmt/format.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "model/fp8.hpp"

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

/// Cuts units with rows of several kinds into one of each: those that are trained and those that
/// are not are kept in different ways, and those of experts that ranks share by other ranks.
model::ParameterTable by_kind(model::ParameterTable table, bool shares_experts) {
  using Kind = std::tuple<int, bool, bool>;  // unit, of experts, trained
  const auto kind_of = [&](const model::Parameter& row) {
    return Kind{row.unit, shares_experts && row.of_experts, row.trainable};
  };
  std::map<Kind, int> new_unit;
  for (const model::Parameter& row : table.rows)
    new_unit.emplace(kind_of(row), 0);
  std::vector<std::string> units;
  for (auto& [key, index] : new_unit) {
    const auto& [unit, is_of_experts, trainable] = key;
    const bool is_cut = trainable && new_unit.contains({unit, is_of_experts, false});
    index = static_cast<int>(units.size());
    units.push_back(table.units.at(static_cast<std::size_t>(unit)) +
                    (is_of_experts ? ".experts" : "") + (is_cut ? ".trained" : ""));
  }
  for (model::Parameter& row : table.rows)
    row.unit = new_unit.at(kind_of(row));
  table.units = std::move(units);
  return table;
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

model::ParameterTable regroup(model::ParameterTable table, Bucket bucket, std::int64_t ep) {
  switch (bucket) {
    case Bucket::block:
      break;
    case Bucket::layer:
      table = by_part(std::move(table));
      break;
    case Bucket::whole:
      table = as_one(std::move(table));
      break;
  }
  table = by_kind(std::move(table), ep > 1);
  model::settle_published(table);
  return table;
}

}  // namespace finetune::plan
