#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a run asked of the simulated device: launches, waits of the host, and by which operations.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace finetune::simulated {

/// Counts of this process. For several threads.
class Counters {
 public:
  /// The ones of this process. If FINETUNE_SIMULATED_REPORT names a file, they are written to
  /// FILE.<rank> when the program ends: "launches N", "syncs N", "peak_bytes N", then a line for
  /// each operation, "launch NAME N" and "sync NAME N".
  static Counters& here();

  /// An operation that a GPU would run as one kernel or more.
  void launch(const std::string& operation);
  /// The host waited for the device.
  void sync(const std::string& operation);

  void write(const std::string& path) const;

 private:
  Counters();

  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t> launches_;
  std::map<std::string, std::int64_t> syncs_;
  std::string traced_;  ///< of FINETUNE_SIMULATED_TRACE: whose callers are printed
};

}  // namespace finetune::simulated
