#pragma once
// SPDX-License-Identifier: Apache-2.0
// A Group over NCCL. Made by group_factory.hpp.

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "comm/group.hpp"
#include "comm/nccl/detail/device_stream.hpp"

namespace finetune::comm {

class NcclHandle;

/// One NCCL communicator that never blocks the host, on the shared stream.
class NcclGroup : public Group {
 public:
  NcclGroup(const Communicator& comm, std::shared_ptr<DeviceStream> stream);
  /// Waits for what was started; after an error aborts it instead, and while an exception unwinds
  /// everything on the stream, since the other ranks may never come.
  ~NcclGroup() override;

  const Communicator& communicator() const override { return comm_; }

  Ticket all_gather(core::DType dtype, const void* shard, void* full, std::int64_t count) override;
  Ticket reduce_scatter(core::DType dtype, const void* full, void* shard,
                        std::int64_t count) override;
  Ticket all_reduce(core::DType dtype, void* values, std::int64_t count) override;
  Ticket all_to_all(const void* send, std::span<const std::int64_t> send_bytes, void* recv,
                    std::span<const std::int64_t> recv_bytes) override;
  Ticket exchange(Exchange exchange) override;
  void together(const std::function<void()>& f) override;

  void remember(void* memory, std::int64_t bytes) override;
  void forget(void* memory) override;

  void wait(Ticket ticket) override;
  void synchronize() override;
  /// All groups of the stream: one of them could not end alone.
  void abandon() override;
  Traffic traffic() const override { return traffic_; }
  double take_exposed_s() override;

 private:
  struct Started;
  Ticket start(Started what);
  /// Puts these on their way, as one.
  Ticket launch(std::vector<Started> parts);
  /// Collective on its ranks, by way of a communicator that nobody counts.
  void connect(const Communicator& unwatched);
  void warm_up(const Communicator& unwatched, float* floats);

  Communicator comm_;
  std::shared_ptr<DeviceStream> stream_;
  std::shared_ptr<NcclHandle> handle_;
  bool is_together_ = false;
  std::vector<Started> together_;  ///< what it has started so far
  Ticket ticket_of_together_ = nothing_started;
  std::map<void*, void*> registrations_;  ///< NCCL's, by memory
  DeviceStream::Stalls stalls_;
  Traffic traffic_{.to_other_nodes_bytes = -1};
  int exceptions_before_ = 0;
};

}  // namespace finetune::comm
