#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether the ranks of a plan can save what they train, before they train it.

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/tiled.hpp"
#include "comm/communicator.hpp"
#include "model/parameter_table.hpp"
#include "plan/plan.hpp"
#include "plan/stored_runs.hpp"
#include "shard/options.hpp"

namespace finetune::train {

/// The trained rows of `whole`, the table of the model, grouped into the units of the plan. Of
/// units that every mesh cuts alike, such as the blocks of a model, one stands for all.
model::ParameterTable units_to_try(const plan::Plan& plan, const model::ParameterTable& whole);

/// All slices that the ranks of the plan's mesh hold (Holders::each) or write (take_turns) of
/// `units` (units_to_try). Ranks are places in the mesh.
std::vector<checkpoint::PlannedSlice> planned_slices(const plan::Plan& plan,
                                                     const model::ParameterTable& units,
                                                     const std::vector<plan::OptimizerState>& kept,
                                                     plan::Holders holders);

/// What a checkpoint of this plan would lack (checkpoint::tiling_problem), or which names tensors
/// of it share. `whole`: the table of the model. Pure arithmetic of all ranks: milliseconds, or a
/// second for thousands of ranks.
std::optional<std::string> tiling_problem(const plan::Plan& plan,
                                          const model::ParameterTable& whole,
                                          const plan::OptimizerFootprint& optimizer);

/// Throws: ErrorKind::bug where there is such a problem; `deck` is its path.
void require_tiling(const plan::Plan& plan, const model::ParameterTable& whole,
                    const plan::OptimizerFootprint& optimizer, const std::string& deck);

/// Whether the groups that the ranks have formed are those of the plan's mesh, with one rank at
/// each place, as require_tiling took it. Collective on `world`. Throws: comm::AgreedError of
/// ErrorKind::bug naming the ranks.
void require_places(const plan::Plan& plan, const shard::Groups& groups,
                    const comm::Communicator& world);

}  // namespace finetune::train
