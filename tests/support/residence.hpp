#pragma once
// SPDX-License-Identifier: Apache-2.0
// Runs of the program in processes that stay: what 64 libraries and MPI cost to start, a test
// program pays once.

#include <filesystem>
#include <string>
#include <vector>

#include "support/run_program.hpp"

namespace finetune::tests {

/// Runs `finetune arguments...` on `ranks` ranks in `folder`, as run_program(finetune_on(...))
/// does, with the same files and exit code. It runs in processes that stay for further runs and end
/// with the test program (finetune_resident); in processes of its own where processes are the
/// point: where the variables of this process have changed since it began, but for OMP_NUM_THREADS
/// and a FINETUNE_FAULT that leaves processes alive, for limits of time and on more than four
/// ranks; and wherever FINETUNE_TESTS_ALONE is set, to find out whose fault a failure is. A run
/// that ends its processes by force ends those that stay; the next run starts others.
Outcome run_finetune(int ranks, const std::vector<std::string>& arguments,
                     const std::filesystem::path& folder);

/// Whether such a run is one for processes that stay.
bool may_stay(int ranks, const std::vector<std::string>& arguments);

}  // namespace finetune::tests
