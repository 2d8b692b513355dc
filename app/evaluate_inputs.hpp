#pragma once
// SPDX-License-Identifier: Apache-2.0
// What `finetune evaluate` is given: decks and runs as the models and adapters that they stand for.

#include "cli.hpp"
#include "comm/communicator.hpp"
#include "train/input/registry.hpp"

namespace finetune::app {

/// `how` with model folders, adapters and task files alone: a deck stands for its model, the newest
/// checkpoint of its run if there is one, and [evaluate] where the command line says nothing; an
/// output folder for its newest checkpoint, a step folder for itself. Checkpoints are exported
/// below how.output by the root, once. Collective on `world`. Throws: comm::AgreedError.
EvaluateArguments resolved(const comm::Communicator& world, EvaluateArguments how,
                           const train::Registry& registry);

/// Removes those exports; the root's alone.
void remove_exports(const EvaluateArguments& how);

}  // namespace finetune::app
