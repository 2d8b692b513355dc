#pragma once
// SPDX-License-Identifier: Apache-2.0
// Named places where a test may make this process fail, as the environment asks:
//   FINETUNE_FAULT=<point>:<rank>:<n-th hit>:<kill|stop|usr1|exc|eio|enospc|slow=MS|flip>[,...]
// A rank of * means every rank, a hit of * every hit. Without the variable a point costs one read.

#include <string_view>

namespace finetune::core::fault {

/// What the caller has to do itself.
enum class FaultAction { none, flip };

/// The rank that faults are compared with. Set by comm::Environment; 0 without MPI.
void set_rank(int rank);

/// As a process that has just started: reads the variable again, counts hits from 1, and the rank
/// is 0. For processes in which another run begins; no other thread may be at a point meanwhile.
/// Throws: ErrorKind::command_line if the variable cannot be read.
void reset();

/// Counts a hit of `point` and does what was asked of it: kills, stops or signals the process,
/// sleeps, or throws as if a system call had failed with EIO or ENOSPC (`where` names it in the
/// message). Thread-safe. Returns FaultAction::flip if the caller shall damage what it holds.
/// Throws: ErrorKind::io for eio and enospc; ErrorKind::bug for exc; ErrorKind::command_line if the
/// variable cannot be read.
FaultAction hit(std::string_view point, std::string_view where = {});

}  // namespace finetune::core::fault
