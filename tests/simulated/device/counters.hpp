#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a run asked of the simulated device: launches, waits of the host, and by which operations.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace finetune::simulated {

/// Of all operations so far.
struct Totals {
  std::int64_t launches = 0;
  std::int64_t bytes = 0;
};

/// Counts of this process. For several threads.
class Counters {
 public:
  /// The ones of this process. If FINETUNE_SIMULATED_REPORT names a file, they are written to
  /// FILE.<rank> when the program ends: "launches N", "syncs N", "peak_bytes N", then a line for
  /// each operation, "launch NAME N", "sync NAME N" and "bytes NAME N".
  static Counters& here();

  /// An operation that a GPU would run as one kernel or more.
  void launch(const std::string& operation);
  /// The host waited for the device.
  void sync(const std::string& operation);
  /// An operation of libtorch's reads or writes so many bytes. What kernels move is not known.
  void move(const std::string& operation, std::int64_t bytes);

  Totals totals() const;
  void write(const std::string& path) const;

 private:
  Counters();

  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t> launches_;
  std::map<std::string, std::int64_t> syncs_;
  std::map<std::string, std::int64_t> bytes_;
  std::string traced_;  ///< of FINETUNE_SIMULATED_TRACE: whose callers are printed
};

}  // namespace finetune::simulated
