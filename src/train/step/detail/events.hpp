#pragma once
// SPDX-License-Identifier: Apache-2.0
// The schedule's events, on shards and on what a pass computes.

#include <functional>
#include <vector>

#include "schedule/pass.hpp"
#include "schedule/stages.hpp"
#include "train/step/passes.hpp"

namespace finetune::train {

/// Runs `compute(event)` for each event of a stage, if this rank has something to compute; the
/// others' weights are among this rank's shards all the same. An exception leaves units open:
/// releasing them waits for other ranks.
/// `update` is called for each unit that is updated, on every rank.
/// The watchdog hears what is computed, and flight records what collectives are for.
void run_events(const Engine& engine, const schedule::Stages& stages,
                const std::vector<schedule::Event>& events, bool computes,
                const std::function<void(const schedule::Event&)>& compute,
                const UpdateUnit& update = {});

}  // namespace finetune::train
