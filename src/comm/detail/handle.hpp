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

/// The ranks of a world, in its order: the job's, or those of an environment over a part of it.
class WorldRanks {
 public:
  explicit WorldRanks(MPI_Comm comm) { check_mpi(MPI_Comm_group(comm, &group_), "MPI_Comm_group"); }
  ~WorldRanks();
  WorldRanks(const WorldRanks&) = delete;
  WorldRanks& operator=(const WorldRanks&) = delete;

  /// Of the `size` ranks of `comm`. Not collective.
  int lowest_of(MPI_Comm comm, int size) const;

 private:
  MPI_Group group_ = MPI_GROUP_NULL;
};

struct Communicator::Handle {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  int first_rank = 0;  ///< the lowest of its ranks, in the world
  int node = 0;        ///< of this rank, in the job
  bool owned = true;   ///< freed with the handle; false for MPI_COMM_WORLD
  std::string name;
  std::shared_ptr<const WorldRanks> world;  ///< that `first_rank` counts in
  /// For broadcasts of many bytes, of which the first makes them; nothing where they are of no use.
  mutable std::unique_ptr<BroadcastLevels> broadcast_levels;
  mutable bool has_broadcast_levels = false;
  std::shared_ptr<Activity> activity;  ///< of this rank; all its communicators record in it

  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle();

  /// Fills in what follows from `comm` and `world`.
  void complete(std::string its_name) {
    name = std::move(its_name);
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    first_rank = world->lowest_of(comm, size);
    check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
};

}  // namespace finetune::comm
