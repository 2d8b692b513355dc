#pragma once
// SPDX-License-Identifier: Apache-2.0
// MPI from start to end: the world communicator, where its ranks are, and how a run ends; or a
// part of the job's ranks as a world of its own.

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "comm/activity.hpp"
#include "comm/communicator.hpp"
#include "comm/watch/flight_recorder.hpp"

namespace finetune::comm {

/// Where the ranks of a world are.
struct Topology {
  int world_size = 1;
  int num_nodes = 1;
  int ranks_per_node = 1;                               ///< the largest number on any node
  std::vector<std::string> node_names = {"localhost"};  ///< by node index
  std::vector<int> node_of_rank = {0};
};

/// Initialises MPI and finalises it, except while an exception unwinds: the other ranks are then
/// still inside their collectives, and MPI_Finalize would wait for them for ever.
class Environment {
 public:
  Environment(int& argc, char**& argv);

  /// The ranks of `given` as a world of their own, as if they were the whole job: their ranks,
  /// nodes, activity and flight records; root and faults of this process go by it from now on.
  /// Another environment, which outlives this one, has started MPI and ends it. A rank that fails
  /// alone (report), and a watchdog over this world, still abort all ranks of the job: MPI
  /// guarantees nothing to those that would be left. Collective on `given`, which needs MPI.
  explicit Environment(const Communicator& given);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  const Communicator& world() const { return world_; }
  /// The ranks that share this rank's memory (MPI_COMM_TYPE_SHARED).
  const Communicator& node() const { return node_; }
  const Topology& topology() const { return topology_; }
  /// What this rank is doing, recorded by all communicators that come from here.
  Activity& activity() const { return *activity_; }

  /// Writes what this rank did last once something goes wrong.
  FlightRecorder& flight() const { return *flight_; }

  /// Processor cores this rank may use: OMP_NUM_THREADS if it is set, those it is bound to, or its
  /// share of those it is bound to together with other ranks.
  int cores() const;

  /// Tells the user about `error` and returns its exit code. An error all ranks agreed on (see
  /// agree.hpp) is printed by the root; any other is printed by this rank, which then aborts the
  /// job, because the others wait for it in some collective; before that all write flight records.
  int report(const std::exception& error) const;

 private:
  friend class Watchdog;
  /// Of world().
  const std::shared_ptr<const Communicator::Handle>& world_handle() const { return world_.handle_; }
  /// Fills in what follows from the world's handle.
  void begin(const std::shared_ptr<Communicator::Handle>& world);

  std::shared_ptr<Activity> activity_ = std::make_shared<Activity>();
  Communicator world_;
  Communicator node_;
  Topology topology_;
  std::unique_ptr<FlightRecorder> flight_;
  int cores_ = 1;
};

/// The exit code of `error`: its kind's, or ErrorKind::bug's for foreign exceptions.
int exit_code(const std::exception& error);

/// The message for the user: the error's text, or a sentence about memory if that is what is
/// missing.
std::string message_of(const std::exception& error);

}  // namespace finetune::comm
