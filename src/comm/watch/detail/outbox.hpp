#pragma once
// SPDX-License-Identifier: Apache-2.0
// The messages of a watchdog that may still be leaving.

#include "comm/mpi/detail/mpi.hpp"
#include "comm/watch/detail/beat.hpp"

namespace finetune::comm {

/// Where this rank's heartbeats go, one at a time.
struct Outbox {
  int rank = 0;
  Beat beat = {};
  MPI_Request request = MPI_REQUEST_NULL;
  bool has_sent_last = false;

  /// Whether the beat before has left.
  bool is_free() {
    int done = 1;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  }
};

}  // namespace finetune::comm
