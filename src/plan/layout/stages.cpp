// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/stages.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace finetune::plan {
namespace {

void insert(std::vector<int>& units, int unit) {
  if (std::ranges::find(units, unit) == units.end()) units.push_back(unit);
}

/// The head's, which a table without blocks has as well.
int last_stage(const model::ParameterTable& table) {
  int last = 1;
  for (const model::Parameter& row : table.rows)
    last = std::max(last, row.stage);
  return last;
}

}  // namespace

schedule::Stages stages_of(const model::ParameterTable& table, const ShardMap& map, int head_row) {
  std::vector<std::vector<int>> of_stages(static_cast<std::size_t>(last_stage(table)) + 1);
  for (int row = 0; row < std::ssize(table.rows); ++row)
    insert(of_stages[static_cast<std::size_t>(table.row(row).stage)], map.unit_of(row));
  insert(of_stages.back(), map.unit_of(head_row));
  // Of a head that is the embedding as well.
  if (head_row < std::ssize(table.rows))
    for (const int part : table.row(head_row).adapted.parts)
      if (part >= 0) insert(of_stages.back(), map.unit_of(part));
  std::vector<schedule::Unit> units;
  for (const UnitLayout& unit : map.units())
    units.push_back({.is_trained = unit.trainable, .stays_gathered = unit.stays_gathered});
  return {std::move(of_stages), std::move(units)};
}

schedule::Rules rules_of(Sharding sharding, int prefetch_depth, schedule::Blocks blocks) {
  return {.keeps_gathered = sharding == Sharding::shard_grad_op,
          .prefetch_depth = prefetch_depth,
          .blocks = blocks};
}

schedule::Blocks blocks_of(ActivationCheckpointing mode, std::int64_t recomputed_blocks,
                           std::int64_t offloaded_blocks) {
  schedule::Blocks blocks{static_cast<int>(recomputed_blocks), static_cast<int>(offloaded_blocks)};
  if (mode == ActivationCheckpointing::full)
    blocks.num_recomputed = schedule::Blocks::recomputed.num_recomputed;
  return blocks;
}

schedule::Blocks blocks_of(const PlanInput& request) {
  return blocks_of(request.activation_checkpointing, request.recomputed_blocks,
                   request.offloaded_blocks);
}

schedule::Rules rules_of(const PlanInput& request, const Mesh& mesh) {
  schedule::Rules rules =
      rules_of(mesh.sharding, request.parallel.prefetch_depth(), blocks_of(request));
  rules.updates_in_backward = request.updates_in_backward;
  return rules;
}

int head_row(const model::Architecture& architecture, const model::ParameterTable& table) {
  const model::Role wanted =
      architecture.tied_embeddings ? model::Role::embedding : model::Role::head;
  for (int row = 0; row < std::ssize(table.rows); ++row)
    if (table.row(row).role == wanted) return row;
  return architecture.tied_embeddings ? 0 : static_cast<int>(table.rows.size()) - 1;
}

}  // namespace finetune::plan
