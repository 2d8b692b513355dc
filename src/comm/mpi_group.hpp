#pragma once
// SPDX-License-Identifier: Apache-2.0
// Collectives on host memory by MPI, on a thread of their own.

#include <memory>

#include "comm/group.hpp"
#include "comm/worker.hpp"

namespace finetune::comm {

/// Every collective is a pairwise exchange: in round s a rank sends to the rank s after it and
/// receives from the rank s before it. Each byte crosses the network once, sums have a fixed order,
/// and what waits for a message sleeps instead of taking a core from the computation.
/// Source: Thakur, Rabenseifner & Gropp 2005, Optimization of Collective Communication Operations
/// in MPICH (pairwise exchange for long messages).
class MpiGroup : public Group {
 public:
  /// Groups that share a worker run their collectives in one order. Collective on `comm`.
  MpiGroup(const Communicator& comm, std::shared_ptr<Worker> worker);
  ~MpiGroup() override;

  const Communicator& communicator() const override { return comm_; }

  Ticket all_gather(core::DType dtype, const void* shard, void* full, std::int64_t count) override;
  Ticket reduce_scatter(core::DType dtype, const void* full, void* shard,
                        std::int64_t count) override;
  Ticket all_reduce(core::DType dtype, void* values, std::int64_t count) override;
  Ticket exchange(Exchange exchange) override;

  void wait(Ticket ticket) override;
  void synchronize() override;
  void abandon() override { worker_->abandon(); }
  Traffic traffic() const override;
  double take_exposed_s() override;

 private:
  class Rounds;
  Ticket start(const char* name, std::int64_t sent_bytes, std::function<void(Rounds&)> work);

  Communicator comm_;
  std::shared_ptr<Worker> worker_;
  Traffic traffic_;
  double exposed_s_ = 0;
};

}  // namespace finetune::comm
