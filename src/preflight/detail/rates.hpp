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
#include "model/path.hpp"
#include "preflight/detail/facts.hpp"
#include "preflight/detail/report.hpp"

namespace finetune::preflight {

/// What a measurement counts.
enum class Timing {
  wall,      ///< what passes, whatever else the machine does
  computing  ///< without what others take of the core, where one thread of the host computes
};

struct Measuring {
  comm::Device device;
  std::int64_t most_bytes = 0;  ///< of buffers
  Timing timing = Timing::wall;
  model::Path bf16_path = model::Path::kernels;  ///< how products of bf16 are computed
};

/// The products of a layer in bf16 and fp32, square and as large as fit into a moment, and sums of
/// long vectors. Takes some seconds. Does not communicate.
MeasuredRates measure_rates(const Measuring& how);

/// What a plan needs in addition (plan::Machine), into `rates` that measure_rates has begun:
/// attention, passes over activations, thin products, single operations, and, of a rank with a GPU,
/// passes over the host's memory and copies to and from it. Takes some seconds. Does not
/// communicate.
void measure_kernels(const Measuring& how, MeasuredRates& rates);

/// GB/s of sums of long vectors.
double measure_memory(const comm::Device& device, std::int64_t most_bytes, Timing timing);

/// A collective of one size.
struct SweepPoint {
  std::int64_t bytes = 0;  ///< of the whole: what a rank has gathered, reduces, deals or hands on
  double seconds = 0;      ///< of the slowest rank of all
  double own_s = 0;        ///< of this rank
};

/// The sweep in which each rank hands all it has to the next one, as in a ring of keys and values.
inline constexpr const char* hand_on = "hand_on";

struct Sweep {
  std::string axis;  ///< "fsdp"
  std::string collective;
  int group_size = 1;
  std::vector<SweepPoint> points;  ///< from the smallest on

  /// Bytes that each rank sends, in a ring where there is one, per second, at the largest size.
  double ring_gb_per_s() const;
  double latency_us() const;  ///< of the smallest
};

/// What a step does over a group of this name (plan::groups, `levels`): activations of experts are
/// dealt to all ranks, keys and values too or handed to the next one, all else is gathered and
/// summed.
std::vector<std::string> collectives_of(const std::string& axis);

/// These collectives in growing sizes in `group`, until one takes long or its buffers would pass
/// `most_bytes`. All groups of the `axis` at once. Timing::computing: for ranks of one node without
/// GPUs, whose messages are copies that their own cores make. Collective on `world`.
std::vector<Sweep> measure_sweeps(const comm::Communicator& world, comm::Group& group,
                                  const comm::Device& device, const std::string& axis,
                                  std::int64_t most_bytes, Timing timing);

/// Sweeps of rank 0, and for each of them what each rank needed for the largest size.
/// Shapes: seconds [sweeps][ranks].
Finding judge_sweeps(const JobFacts& job, std::span<const Sweep> sweeps,
                     const std::vector<std::vector<double>>& seconds);

}  // namespace finetune::preflight
