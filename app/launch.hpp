#pragma once
// SPDX-License-Identifier: Apache-2.0
// The program between its command line and its exit code, for whoever has started the process.

#include "comm/environment.hpp"

namespace finetune::app {

/// Runs a command that needs no ranks (needs_ranks), and reports what it throws. -> Exit code.
int launch(int argc, char** argv);

/// Before MPI starts, since a scheduler's warning may come early: signals ask to stop from now on,
/// and what is printed is remembered for the log.
void prepare_ranks(int argc, char** argv);

/// Trains, or runs another command on the ranks of `env`; reports what is thrown. Collective on the
/// environment's world. -> Exit code.
int launch(const comm::Environment& env, int argc, char** argv);

}  // namespace finetune::app
