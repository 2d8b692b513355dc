// SPDX-License-Identifier: Apache-2.0
#include "plan/stages.hpp"

#include <algorithm>

namespace finetune::plan {
namespace {

bool contains(const std::vector<int>& units, int unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

void insert(std::vector<int>& units, int unit) {
  if (!contains(units, unit)) units.push_back(unit);
}

int last_stage(const model::ParameterTable& table) {
  int last = 0;
  for (const model::Parameter& row : table.rows)
    last = std::max(last, row.stage);
  return last;
}

}  // namespace

Stages::Stages(const model::ParameterTable& table, const ShardMap& map, int head_row)
    : units_(static_cast<std::size_t>(last_stage(table)) + 1), completed_(units_.size()) {
  for (int row = 0; row < static_cast<int>(table.rows.size()); ++row)
    insert(units_[static_cast<std::size_t>(table.row(row).stage)], map.unit_of(row));
  insert(units_.back(), map.unit_of(head_row));

  for (std::size_t stage = 1; stage < units_.size(); ++stage) {
    for (const int unit : units_[stage])
      if (contains(units_[stage - 1], unit)) insert(all_along_, unit);
  }
  std::vector<int> seen;
  for (std::size_t stage = 0; stage < units_.size(); ++stage) {
    for (const int unit : units_[stage]) {
      if (!contains(seen, unit)) completed_[stage].push_back(unit);
      insert(seen, unit);
    }
  }
}

int head_row(const model::Architecture& architecture, const model::ParameterTable& table) {
  const model::Role wanted =
      architecture.tied_embeddings ? model::Role::embedding : model::Role::head;
  for (int row = 0; row < std::ssize(table.rows); ++row)
    if (table.row(row).role == wanted) return row;
  return architecture.tied_embeddings ? 0 : static_cast<int>(table.rows.size()) - 1;
}

}  // namespace finetune::plan
