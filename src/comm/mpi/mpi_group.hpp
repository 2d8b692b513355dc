#pragma once
// SPDX-License-Identifier: Apache-2.0
// Collectives on host memory by MPI, on a thread of their own.

#include <memory>
#include <string>
#include <vector>

#include "comm/detail/worker.hpp"
#include "comm/group.hpp"

namespace finetune::comm {

class PointToPoint;
class TwoLevel;
struct Parts;

/// Collectives by messages from each rank to each other one; where several nodes have several ranks
/// each, in two levels: between nodes by as few messages as bits allow, inside them by shared
/// memory. Sums have one fixed order, whatever the nodes and levels, so that bits depend on
/// neither.
///
/// Between nodes passes, for N nodes: in a gather each part N - 1 times. In a sum each part N times
/// as a running sum, N - 1 times if its elements are integers; or, if that is less (of two nodes of
/// two ranks, say), a term of each rank that is on another node.
class MpiGroup : public Group {
 public:
  struct Options {
    /// two: also for sums where it takes more bytes between nodes.
    enum class Levels { cheapest, one, two };
    Levels levels = Levels::cheapest;
    /// Of shared memory: two of them for each rank. 0: as many as the nodes need.
    std::int64_t window_half_bytes = 0;
  };

  /// Groups that share a worker run their collectives in one order. Collective on `comm`. Where
  /// ranks cannot share memory they communicate in one level; why_one_level says so.
  MpiGroup(const Communicator& comm, std::shared_ptr<Worker> worker);
  MpiGroup(const Communicator& comm, std::shared_ptr<Worker> worker, const Options& options);
  ~MpiGroup() override;

  const Communicator& communicator() const override { return comm_; }

  /// What keeps this rank's node from sharing memory where that would be of use; else empty.
  const std::string& why_one_level() const { return why_one_level_; }

  Ticket all_gather(core::DType dtype, const void* shard, void* full, std::int64_t count) override;
  Ticket reduce_scatter(core::DType dtype, const void* full, void* shard,
                        std::int64_t count) override;
  Ticket all_reduce(core::DType dtype, void* values, std::int64_t count) override;
  Ticket all_to_all(const void* send, std::span<const std::int64_t> send_bytes, void* recv,
                    std::span<const std::int64_t> recv_bytes) override;
  Ticket exchange(Exchange exchange) override;

  void wait(Ticket ticket) override;
  void synchronize() override;
  void abandon() override { worker_->abandon(); }
  Traffic traffic() const override;
  double take_exposed_s() override;

 private:
  void set_up_levels(const Options& options);
  bool adds_in_two_levels(const Exchange& exchange) const;

  /// On the worker's thread.
  void run_gather(const PointToPoint& messages, const Parts& parts);
  void run_exchange(const PointToPoint& messages, const Exchange& exchange);

  void count(const Parts& parts);
  void count(const Exchange& exchange);
  void count(std::span<const std::int64_t> send_bytes);
  Ticket start(const char* name, std::function<void(const PointToPoint&)> work);

  Communicator comm_;
  std::shared_ptr<Worker> worker_;
  std::vector<int> ranks_elsewhere_;  ///< on other nodes
  std::unique_ptr<TwoLevel> two_level_;
  Options::Levels levels_ = Options::Levels::cheapest;
  std::string why_one_level_;
  Traffic traffic_;
  std::int64_t told_bytes_ = 0;  ///< of traffic_.sent_bytes: what Activity knows
  double exposed_s_ = 0;
};

}  // namespace finetune::comm
