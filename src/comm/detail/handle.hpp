#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a Communicator holds.

#include <memory>
#include <string>
#include <utility>

#include "comm/activity.hpp"
#include "comm/communicator.hpp"
#include "comm/detail/broadcast.hpp"
#include "comm/mpi/detail/mpi.hpp"

namespace finetune::comm {

/// Of the ranks of `comm`. Not collective.
int lowest_world_rank(MPI_Comm comm, int size);

struct Communicator::Handle {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  int first_rank = 0;  ///< the lowest of its ranks, in the world
  int node = 0;        ///< of this rank, in the job
  bool owned = true;   ///< freed with the handle; false for MPI_COMM_WORLD
  std::string name;
  /// For broadcasts of many bytes, of which the first makes them; nothing where they are of no use.
  mutable std::unique_ptr<BroadcastLevels> broadcast_levels;
  mutable bool has_broadcast_levels = false;
  std::shared_ptr<Activity> activity;  ///< of this rank; all its communicators record in it

  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle();

  /// Fills in what follows from `comm`.
  void complete(std::string its_name) {
    name = std::move(its_name);
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    first_rank = lowest_world_rank(comm, size);
    check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
};

/// MPI's own handle, for what needs more of it than Communicator offers.
struct Raw {
  static MPI_Comm of(const Communicator& comm) { return comm.handle_->comm; }
};

}  // namespace finetune::comm
