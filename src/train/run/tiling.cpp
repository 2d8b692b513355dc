// SPDX-License-Identifier: Apache-2.0
#include "train/run/tiling.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "model/part.hpp"
#include "plan/layout/bucket.hpp"

namespace finetune::train {
namespace {

/// All that parts and shards of a row follow from.
std::string layout_of(const model::Parameter& row) {
  std::string text = fmt::format("[{}]", fmt::join(row.shape, ","));
  if (row.split) {
    text += fmt::format(" split {}", row.split->dim);
    for (const model::Pieces& pieces : row.split->matrices)
      text += fmt::format(" {}x{}/{}", pieces.num, pieces.size, pieces.parts);
  }
  if (row.of_experts)
    text += fmt::format(" experts {}+{} of {}", row.of_experts->first, row.of_experts->num,
                        row.of_experts->total);
  return text + ";";
}

/// A name that two tensors of a checkpoint would have.
std::optional<std::string> twice(const model::ParameterTable& grouped) {
  std::set<std::string> names, units;
  for (const model::Parameter& row : grouped.rows)
    if (row.trainable && !names.insert(row.name).second)
      return fmt::format("two trained tensors are called {}", row.name);
  for (const std::string& unit : grouped.units)
    if (!units.insert(unit).second) return fmt::format("two units are called {}", unit);
  return std::nullopt;
}

/// A trained tensor that nobody writes.
std::optional<std::string> left_out(const model::ParameterTable& units,
                                    const std::vector<plan::OptimizerState>& kept,
                                    const std::vector<checkpoint::PlannedSlice>& slices) {
  std::map<std::pair<std::string, std::string>, const std::vector<std::int64_t>*> written;
  for (const checkpoint::PlannedSlice& each : slices)
    written.try_emplace({each.kind, each.slice.name}, &each.slice.shape);
  for (const plan::OptimizerState& state : kept) {
    if (state.block != 1 || !state.is_of_elements()) continue;
    for (const model::Parameter& row : units.rows) {
      if (row.count() == 0) continue;
      const auto found = written.find({state.kind, row.name});
      if (found == written.end())
        return fmt::format("{} {} would be written by nobody", state.kind, row.name);
      if (*found->second != row.shape)
        return fmt::format("{} {} is [{}], and would be written as [{}]", state.kind, row.name,
                           fmt::join(row.shape, ", "), fmt::join(*found->second, ", "));
    }
  }
  return std::nullopt;
}

/// What is to be tried of what an optimizer keeps: values of single elements are all cut alike, so
/// the master weights stand for them.
std::vector<plan::OptimizerState> states_to_try(const plan::OptimizerFootprint& optimizer,
                                                const plan::Numbers& numbers) {
  std::vector<plan::OptimizerState> states = plan::stored_states(optimizer, numbers);
  const auto first = std::next(states.begin());
  states.erase(std::remove_if(first, states.end(),
                              [](const plan::OptimizerState& state) {
                                return state.block == 1 && state.is_of_elements();
                              }),
               states.end());
  return states;
}

/// A rank's own table, and where it lies in buffers.
struct OwnUnits {
  OwnUnits(const plan::Plan& plan, const model::ParameterTable& units, const model::PartPlace& part)
      : table(model::part_of(units, part)),
        map(table, plan.shards.num_shards(), plan.shards.rules()) {}

  model::ParameterTable table;
  plan::ShardMap map;
};

}  // namespace

model::ParameterTable units_to_try(const plan::Plan& plan, const model::ParameterTable& whole) {
  const model::ParameterTable grouped = plan::regroup(whole, plan.bucket, plan.mesh.ep);
  std::vector<std::string> layouts(grouped.units.size());
  for (const model::Parameter& row : grouped.rows)
    if (row.trainable) layouts[static_cast<std::size_t>(row.unit)] += layout_of(row);
  model::ParameterTable units;
  std::vector<int> new_unit(grouped.units.size(), -1);
  std::set<std::string> known = {""};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    if (!known.insert(layouts[i]).second) continue;
    new_unit[i] = static_cast<int>(units.units.size());
    units.units.push_back(grouped.units[i]);
  }
  for (const model::Parameter& row : grouped.rows) {
    const int unit = new_unit[static_cast<std::size_t>(row.unit)];
    if (unit < 0) continue;
    units.rows.push_back(row);
    units.rows.back().unit = unit;
  }
  return units;
}

std::vector<checkpoint::PlannedSlice> planned_slices(const plan::Plan& plan,
                                                     const model::ParameterTable& units,
                                                     const std::vector<plan::OptimizerState>& kept,
                                                     plan::Holders holders) {
  std::vector<checkpoint::PlannedSlice> slices;
  std::map<std::pair<std::int64_t, std::int64_t>, OwnUnits> parts;
  for (std::int64_t position = 0; position < plan.mesh.size(); ++position) {
    for (int unit = 0; unit < static_cast<int>(units.units.size()); ++unit) {
      const auto of = [&](const plan::UnitLayout& layout) {
        return plan::holder_place(plan.mesh, position, layout);
      };
      const model::PartPlace part = of({}).part;
      const OwnUnits& own =
          parts.try_emplace({part.i_tp, part.i_ep}, plan, units, part).first->second;
      for (plan::StoredRun& run :
           plan::stored_runs(own.table, own.map, unit, of(own.map.unit(unit)), kept, holders))
        slices.push_back({kept[run.kept].kind, std::move(run.slice), position});
    }
  }
  return slices;
}

std::optional<std::string> tiling_problem(const plan::Plan& plan,
                                          const model::ParameterTable& whole,
                                          const plan::OptimizerFootprint& optimizer) {
  if (auto problem = twice(plan::regroup(whole, plan.bucket, plan.mesh.ep))) return problem;
  const model::ParameterTable units = units_to_try(plan, whole);
  const std::vector<plan::OptimizerState> kept = states_to_try(optimizer, plan.numbers);
  auto slices = planned_slices(plan, units, kept, plan::Holders::take_turns);
  if (auto problem = left_out(units, kept, slices)) return problem;
  return checkpoint::tiling_problem(std::move(slices));
}

void require_tiling(const plan::Plan& plan, const model::ParameterTable& whole,
                    const plan::OptimizerFootprint& optimizer, const std::string& deck) {
  const auto problem = tiling_problem(plan, whole, optimizer);
  if (!problem) return;
  core::fail(core::ErrorKind::bug,
             {deck, "this mesh could not save what it trains", *problem,
              "Use other sizes of [parallel], and report this with the deck and config.json."});
}

void require_places(const plan::Plan& plan, const shard::Groups& groups,
                    const comm::Communicator& world) {
  const model::PartPlace part = groups.part_place();
  const comm::Communicator& shards = groups.fsdp->communicator();
  const comm::Communicator& copies = groups.dp_replicate->communicator();
  const auto all = world.all_gather_text(
      fmt::format("tp {} of {}, ep {} of {}, shard {} of {}, copy {} of {}", part.i_tp, part.tp,
                  part.i_ep, part.ep, shards.rank(), shards.size(), copies.rank(), copies.size()));
  const plan::Mesh& mesh = plan.mesh;
  std::map<std::string, std::int64_t> free;
  for (std::int64_t position = 0; position < mesh.size(); ++position) {
    const plan::HolderPlace place = plan::holder_place(mesh, position, {});
    ++free[fmt::format("tp {} of {}, ep {} of {}, shard {} of {}, copy {} of {}", place.part.i_tp,
                       place.part.tp, place.part.i_ep, place.part.ep, place.i_shard,
                       mesh.size(plan::groups::fsdp), place.i_copy, place.num_copies)];
  }
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (--free[all[rank]] < 0)
      throw comm::AgreedError(
          core::ErrorKind::bug,
          core::to_string(
              {"parallel",
               fmt::format("rank {} has place {}, which is not free in the mesh", rank, all[rank]),
               "every rank has its place, or checkpoints would lack some elements",
               "Report this with the deck and how the job was launched."}));
}

}  // namespace finetune::train
