#pragma once
// SPDX-License-Identifier: Apache-2.0
// The stream that collectives of the simulated device run on.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "comm/group.hpp"
#include "simulated/device/order.hpp"

namespace finetune::simulated {

/// One stream for all groups of the process, as comm::DeviceStream is. Collectives are as late as
/// they may be: until somebody waits, what they write holds NaNs, and what they read must stay as
/// it is. So a missing wait is not only found by Order, it also changes numbers.
class CommunicationStream {
 public:
  static CommunicationStream& here();

  /// Memory of the device.
  struct Part {
    void* address = nullptr;
    std::size_t bytes = 0;
  };
  /// Computes `to` (not the device's memory) from `from`, which kernels can read.
  using Move = std::function<void(const void* from, void* to)>;

  /// Puts a collective behind what the current stream holds.
  comm::Ticket start(const std::string& collective, Part read, Part written, const Move& move);
  /// What is put on the current stream from now on comes after `ticket`.
  void make_compute_wait(comm::Ticket ticket);
  /// The host waits for everything on the stream.
  void synchronize();

 private:
  struct Started {
    std::string collective;
    Clock done;
  };
  struct OnItsWay {
    comm::Ticket ticket = comm::nothing_started;
    Part read;
    Part written;
    std::vector<std::byte> was_read;  ///< what `read` held; empty where it is overwritten
    std::vector<std::byte> result;
  };

  void arrive(const OnItsWay& way) const;
  void arrive_until(comm::Ticket ticket);

  std::mutex mutex_;
  std::vector<Started> started_;  ///< by ticket, from 1; few enough in a test to keep them all
  std::deque<OnItsWay> on_their_way_;
};

}  // namespace finetune::simulated
