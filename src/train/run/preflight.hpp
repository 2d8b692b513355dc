#pragma once
// SPDX-License-Identifier: Apache-2.0
// The check of a job (src/preflight) for the run that a deck describes.

#include <cstdint>

#include "comm/device.hpp"
#include "comm/environment.hpp"
#include "plan/plan.hpp"
#include "preflight/check.hpp"
#include "shard/options.hpp"
#include "train/input/input.hpp"
#include "train/run/planning.hpp"

namespace finetune::train {

/// What the check has to know of the run that `input` describes. A full check measures the groups
/// that training would use, and makes them for it. Collective on the environment's world.
struct Preflight {
  preflight::CheckInput request;
  shard::Groups groups;  ///< of the run
  shard::Groups levels;  ///< see measure_levels
};
Preflight describe_check(const comm::Environment& environment, const Input& input,
                         const comm::Device& device, const PlannedRun& planned,
                         preflight::CheckDepth level);

/// Lets the check measure inside nodes and between them apart, whatever the run's own groups are:
/// a table [machine] gives both. Nothing on one node, on nodes of one rank, and on uneven ones.
/// Collective on the environment's world.
void measure_levels(const comm::Environment& environment, const Input& input,
                    const comm::Device& device, Preflight& made);

/// The part of the check that comes before devices are used; see preflight::begin. Collective on
/// the environment's world.
preflight::FirstLook begin_check(const comm::Environment& environment, const Input& input);

/// The check that train.preflight asks for, before a run begins. Prints what is wrong. Returns the
/// exit code on every rank: 0 if the run may begin. Collective on the environment's world.
int check_before_run(const comm::Environment& environment, const preflight::FirstLook& beginning,
                     const Input& input, const comm::Device& device, const PlannedRun& planned);

}  // namespace finetune::train
