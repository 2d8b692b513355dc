#pragma once
// SPDX-License-Identifier: Apache-2.0
// Ending a job by force, whatever state its launcher is in.

#include <sys/types.h>

namespace finetune::comm {

/// Ends every rank of the job with `code`. Returns only if MPI does not end this process.
void abort_job(int code);

/// Kills the process `launcher` if it is still there in `grace_s`, and is one of Open MPI's that
/// start ranks (mpirun, orted and the like); of others nothing is expected. Does not wait, and
/// outlives this process. Returns whether it watches.
bool end_if_stuck(pid_t launcher, int grace_s);

}  // namespace finetune::comm
