// SPDX-License-Identifier: Apache-2.0
#include "comm/environment.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <utility>

#include "comm/agree.hpp"
#include "comm/handle.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace finetune::comm {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

Topology find_topology(const Communicator& world, const Communicator& node) {
  // A node is named after its lowest world rank: two nodes may carry the same host name in
  // containers, and one host name may hold two MPI nodes.
  const std::int64_t leader = node.all_reduce(std::int64_t{world.rank()}, Reduce::min);
  std::vector<std::int64_t> leaders(static_cast<std::size_t>(world.size()));
  world.all_gather(core::DType::i64, &leader, leaders.data(), 1);
  const auto hosts = world.all_gather_text(host_name());

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

}  // namespace

Environment::Environment(int& argc, char**& argv) {
  int provided = 0;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");

  auto world = std::make_shared<Communicator::Handle>();
  world->comm = MPI_COMM_WORLD;
  world->owned = false;
  world->complete("world");
  world_ = Communicator(world);
  log::set_root(world_.is_root());

  auto node = std::make_shared<Communicator::Handle>();
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world_.rank(), MPI_INFO_NULL,
                                &node->comm),
            "MPI_Comm_split_type");
  node->complete("node");
  node_ = Communicator(std::move(node));
  topology_ = find_topology(world_, node_);
}

Environment::~Environment() {
  node_ = Communicator();
  world_ = Communicator();
  if (std::uncaught_exceptions() == 0) MPI_Finalize();
}

int Environment::cores() const {
  const char* told = std::getenv("OMP_NUM_THREADS");
  if (told != nullptr && std::atoi(told) > 0) return std::atoi(told);
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (::sched_getaffinity(0, sizeof(mine), &mine) != 0) return 1;
  const int bound = CPU_COUNT(&mine);
  const int online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  // A rank bound to part of the node owns that part; unbound ranks share what they may run on.
  return bound < online ? bound : std::max(1, bound / node_.size());
}

int Environment::report(const std::exception& error) const {
  const int code = exit_code(error);
  if (dynamic_cast<const AgreedError*>(&error) != nullptr || world_.size() == 1) {
    if (world_.is_root()) log::error(error.what());
    return code;
  }
  log::error(fmt::format("rank {} on {}: {}", world_.rank(),
                         topology_.node_names[static_cast<std::size_t>(
                             topology_.node_of_rank[static_cast<std::size_t>(world_.rank())])],
                         error.what()));
  MPI_Abort(MPI_COMM_WORLD, code);
  return code;
}

int exit_code(const std::exception& error) {
  const auto* known = dynamic_cast<const core::Error*>(&error);
  return known != nullptr ? known->exit_code() : static_cast<int>(core::ErrorKind::bug);
}

}  // namespace finetune::comm
