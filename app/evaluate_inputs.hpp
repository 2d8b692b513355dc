#pragma once
// SPDX-License-Identifier: Apache-2.0
// What `finetune evaluate` is given: decks and runs as the models and adapters that they stand for.

#include <map>
#include <optional>
#include <string>

#include "cli.hpp"
#include "comm/communicator.hpp"
#include "core/file.hpp"
#include "train/input/registry.hpp"

namespace finetune::app {

/// A checkpoint that was exported, as tables call it.
struct CheckpointNames {
  std::string name;  ///< "RUN-step-0000000200", of the last name of the run's folder
  std::string path;  ///< of its folder, which tells it from others of that name
};

struct EvaluateInputs {
  EvaluateArguments how;
  std::map<std::string, CheckpointNames> checkpoints;  ///< by the folder of the export
  std::optional<core::File> lock;                      ///< of how.output, on the root
};

/// `how` with model folders, adapters and task files alone: a deck stands for its model, the newest
/// checkpoint of its run if there is one, and [evaluate] where the command line says nothing; an
/// output folder for its newest checkpoint, a step folder for itself. Checkpoints are exported
/// below how.output by the root, once; it is locked. Collective on `world`. Throws:
/// comm::AgreedError, of ErrorKind::create where another process writes to how.output.
EvaluateInputs resolved(const comm::Communicator& world, EvaluateArguments how,
                        const train::Registry& registry);

/// Removes those exports; the root's alone.
void remove_exports(const EvaluateArguments& how);

}  // namespace finetune::app
