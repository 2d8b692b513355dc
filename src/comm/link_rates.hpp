#pragma once
// SPDX-License-Identifier: Apache-2.0
// How fast the collectives of this rank's groups moved bytes.

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::comm {

/// The fastest of a group's collectives in some time, as this rank saw it.
struct LinkRate {
  std::string axis;
  int first_rank = 0;  ///< with `axis` and `num_ranks` it names the group, as in Details
  int num_ranks = 1;
  double bytes_per_s = 0;  ///< that this rank sent
};

/// Written by the threads that finish collectives, read by the one that reports. Thread-safe; takes
/// memory from the heap for the first collective of a group alone.
///
/// A rank that comes early waits inside a collective for the others, so its own rate says little.
/// The last one to come measures the transfer: the largest rate over a group's ranks is that of the
/// links between them.
class LinkRates {
 public:
  /// What sends less says more of latencies than of links.
  static constexpr std::int64_t least_bytes = 1 << 20;

  /// A collective of `bytes`, that this rank sent, ran for `seconds`.
  void add(std::string_view axis, int first_rank, int num_ranks, std::int64_t bytes,
           double seconds);

  /// Of the groups that had one since the last call.
  std::vector<LinkRate> take();

 private:
  std::mutex mutex_;
  std::vector<LinkRate> best_;  ///< a handful; 0 where there was none since the last call
};

}  // namespace finetune::comm
