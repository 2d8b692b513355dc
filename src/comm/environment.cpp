// SPDX-License-Identifier: Apache-2.0
#include "comm/environment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "comm/agree.hpp"
#include "comm/detail/explained.hpp"
#include "comm/detail/handle.hpp"
#include "comm/detail/launcher.hpp"
#include "comm/detail/waiting.hpp"
#include "core/cores.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/host.hpp"
#include "core/log.hpp"

namespace finetune::comm {
namespace {

constexpr double longest_record_s = 5;

Topology find_topology(const Communicator& world, const Communicator& node) {
  // A node is named after its lowest world rank: two nodes may carry the same host name in
  // containers, and one host name may hold two MPI nodes.
  const std::int64_t leader = node.all_reduce(std::int64_t{world.rank()}, Reduce::min);
  std::vector<std::int64_t> leaders(static_cast<std::size_t>(world.size()));
  world.all_gather(core::DType::i64, &leader, leaders.data(), 1);
  const auto hosts = world.all_gather_text(core::host_name());

  Topology topology;
  topology.world_size = world.size();
  topology.node_names.clear();
  topology.node_of_rank.clear();
  std::map<std::int64_t, int> index_of_leader;
  std::map<int, int> ranks_on;
  for (std::size_t rank = 0; rank < leaders.size(); ++rank) {
    const auto [entry, is_new] =
        index_of_leader.try_emplace(leaders[rank], static_cast<int>(index_of_leader.size()));
    if (is_new) topology.node_names.push_back(hosts[rank]);
    topology.node_of_rank.push_back(entry->second);
    topology.ranks_per_node = std::max(topology.ranks_per_node, ++ranks_on[entry->second]);
  }
  topology.num_nodes = static_cast<int>(topology.node_names.size());
  return topology;
}

/// Cores of this rank: those of its mask, divided by the ranks of the node that have the same one.
/// A launcher may bind each rank to a core, several to a socket, or none at all.
int share_of_cores(const Communicator& node) {
  const std::vector<int> cores = core::own_cores();
  const std::string mine = fmt::format("{}", fmt::join(cores, ","));
  const auto masks = node.all_gather_text(mine);
  const auto sharing = std::count(masks.begin(), masks.end(), mine);
  const char* told = std::getenv("OMP_NUM_THREADS");
  if (told != nullptr && std::atoi(told) > 0) return std::atoi(told);
  return std::max(1, static_cast<int>(cores.size()) / static_cast<int>(sharing));
}

}  // namespace

Environment::Environment(int& argc, char**& argv) {
  FlightRecorder::catch_signal();
  int provided = 0;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");

  auto world = std::make_shared<Communicator::Handle>();
  world->comm = MPI_COMM_WORLD;
  world->owned = false;
  begin(world);
}

Environment::Environment(const Communicator& given) {
  core::check(given.handle_ != nullptr, "an environment over ranks needs MPI");
  auto world = std::make_shared<Communicator::Handle>();
  arrive(given.handle_->comm);
  check_mpi(MPI_Comm_dup(given.handle_->comm, &world->comm), "MPI_Comm_dup");
  begin(world);
}

void Environment::begin(const std::shared_ptr<Communicator::Handle>& world) {
  world->activity = activity_;
  world->world = std::make_shared<WorldRanks>(world->comm);
  world->complete("world");
  world_ = Communicator(world);
  log::set_root(world_.is_root());
  core::fault::set_rank(world_.rank());

  auto node = std::make_shared<Communicator::Handle>();
  node->activity = activity_;
  node->world = world->world;
  check_mpi(MPI_Comm_split_type(world->comm, MPI_COMM_TYPE_SHARED, world_.rank(), MPI_INFO_NULL,
                                &node->comm),
            "MPI_Comm_split_type");
  node->complete("node");
  node_ = Communicator(node);
  topology_ = find_topology(world_, node_);
  world->node = node->node = topology_.node_of_rank[static_cast<std::size_t>(world_.rank())];
  cores_ = share_of_cores(node_);
  flight_ =
      std::make_unique<FlightRecorder>(*activity_, world_.rank(), world_.size(),
                                       topology_.node_names[static_cast<std::size_t>(world->node)]);
}

Environment::~Environment() {
  const bool is_of_job = !world_.handle_->owned;
  flight_.reset();
  node_ = Communicator();
  world_ = Communicator();
  if (is_of_job && std::uncaught_exceptions() == 0) MPI_Finalize();
}

int Environment::cores() const {
  return cores_;
}

int Environment::report(const std::exception& error) const {
  const int code = exit_code(error);
  if (dynamic_cast<const AgreedError*>(&error) != nullptr || world_.size() == 1) {
    if (world_.is_root()) log::error(message_of(error));
    return code;
  }
  log::error(fmt::format("rank {} on {}: {}", world_.rank(),
                         topology_.node_names[static_cast<std::size_t>(
                             topology_.node_of_rank[static_cast<std::size_t>(world_.rank())])],
                         message_of(error)));
  flight_->write_everywhere(message_of(error), longest_record_s);
  abort_job(code);
  return code;
}

std::string message_of(const std::exception& error) {
  return explain(error).message;
}

int exit_code(const std::exception& error) {
  return static_cast<int>(explain(error).kind);
}

}  // namespace finetune::comm
