#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a rank computes, copies and sends, measured as training uses it: on its device, with its
// threads, all ranks at once.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/device.hpp"
#include "comm/group.hpp"
#include "preflight/facts.hpp"
#include "preflight/report.hpp"

namespace finetune::preflight {

/// Square matrix products in bf16 and fp32, as large as fit into a moment, and sums of long
/// vectors. Buffers stay below `most_bytes`. Takes about a second. Does not communicate.
Rates measure_rates(const comm::Device& device, std::int64_t most_bytes);

/// A collective of one size.
struct SweepPoint {
  std::int64_t bytes = 0;  ///< of the whole: what a rank has gathered, or reduces
  double seconds = 0;      ///< of the slowest rank of all
  double own_s = 0;        ///< of this rank
};

struct Sweep {
  std::string axis;  ///< "fsdp"
  std::string collective;
  int group_size = 1;
  std::vector<SweepPoint> points;  ///< from the smallest on

  /// Bytes that each rank sends in a ring, per second, at the largest size.
  double ring_gb_per_s() const;
  double latency_us() const;  ///< of the smallest
};

/// all_gather, reduce_scatter and all_reduce of growing sizes in `group`, until one takes long or
/// its buffers would pass `most_bytes`. All groups of the `axis` at once. Collective on `world`.
std::vector<Sweep> measure_sweeps(const comm::Communicator& world, comm::Group& group,
                                  const comm::Device& device, const std::string& axis,
                                  std::int64_t most_bytes);

/// Sweeps of rank 0, and for each of them what each rank needed for the largest size.
/// Shapes: seconds [sweeps][ranks].
Finding judge_sweeps(const Job& job, std::span<const Sweep> sweeps,
                     const std::vector<std::vector<double>>& seconds);

}  // namespace finetune::preflight
