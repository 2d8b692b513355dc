#pragma once
// SPDX-License-Identifier: Apache-2.0
// The learning-rate range test: a short run whose learning rate rises, and what it speaks for.

#include <filesystem>

#include "plan/plan.hpp"
#include "shard/model_shards.hpp"
#include "train/input/input.hpp"
#include "train/run/lr_range_settings.hpp"
#include "world/world.hpp"

namespace finetune::train {

/// Lets `input` write to `output` (empty: the run's folder with "-lr-range" behind its name) and
/// leaves everything else as it is: the same plan, data and token cache.
/// Throws: ErrorKind::command_line if that is the folder of the run.
void redirect_output(const std::filesystem::path& output, Input& input);

/// Trains range.num_steps steps on the deck's data from its first weights, with clipping, batch and
/// precision of the deck, and with learning rates of `range` in the place of optimizer.schedule.
/// Ends earlier where the loss diverges or is not finite, or where a signal asks to stop. Writes
/// lr_range.jsonl and lr_range.svg to train.output and prints table, curve and advice; no
/// checkpoint. -> Exit code: core::exit_resubmit_older if a signal ended it.
/// Collective on the world. Throws: comm::AgreedError.
int find_lr(const Input& input, const plan::Plan& plan, const world::World& world,
            const shard::Groups& groups, const Registry& registry, const LrRange& range);

}  // namespace finetune::train
