#pragma once
// SPDX-License-Identifier: Apache-2.0
// The group of a rank that is alone on its axis.

#include "comm/group.hpp"

namespace finetune::comm {

/// Of one rank, on any device: it has nobody to move anything to or from, and nothing of NCCL or
/// MPI is made for it. Starting a collective on it is a bug, as whoever would start one can do
/// without.
class AloneGroup : public Group {
 public:
  explicit AloneGroup(const Communicator& comm);

  const Communicator& communicator() const override { return comm_; }

  Ticket all_gather(core::DType, const void*, void*, std::int64_t) override;
  Ticket reduce_scatter(core::DType, const void*, void*, std::int64_t) override;
  Ticket all_reduce(core::DType, void*, std::int64_t) override;
  Ticket exchange(Exchange) override;

  void wait(Ticket) override {}
  void synchronize() override {}
  Traffic traffic() const override { return {}; }
  double take_exposed_s() override { return 0; }

 private:
  Communicator comm_;
};

}  // namespace finetune::comm
