#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where the time of a step goes, on the fastest, the middle and the slowest rank.

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "metrics/detail/spread.hpp"

namespace finetune::metrics {

/// Seconds of one rank in one step, or sums of them over several.
struct StepTimes {
  double compute_s = 0;  ///< what is left of the step: forward, backward, norms
  double exposed_s = 0;  ///< communication that no computation hid, and waiting for slower ranks
  double data_s = 0;     ///< making micro-batches
  double optimizer_s = 0;
  double checkpoint_s = 0;  ///< the step was blocked by a save

  static constexpr std::array names = {"compute_s", "exposed_s", "data_s", "optimizer_s",
                                       "checkpoint_s"};
  std::array<double, 5> values() const {
    return {compute_s, exposed_s, data_s, optimizer_s, checkpoint_s};
  }
  void add(const StepTimes& other);
};

/// Of bytes that were sent: those that left the node. Not told where there are none, or where only
/// NCCL knows.
inline constexpr const char* to_other_nodes = "to_other_nodes";

/// The most that a rank has used so far; 0: not looked at.
struct PeakBytes {
  std::int64_t tensors = 0;  ///< on the device that computes
  std::int64_t process = 0;  ///< resident in main memory
};

/// Means a step of the ranks.
struct [[nodiscard]] TimeReport {
  std::int64_t num_steps = 0;  ///< it covers
  std::array<Spread, 5> parts;
  PeakBytes peak;  ///< of the rank that has used most
  /// The rank the others wait for: it waited least itself.
  int slowest_rank = 0;
  std::string slowest_host;
  /// Bytes per step that the root sent, by mesh axis, and `to_other_nodes` of both.
  std::vector<std::pair<std::string, std::int64_t>> sent_bytes;
  /// Seconds per step that the root waited, by mesh axis; empty where units alone travel.
  std::vector<std::pair<std::string, double>> exposed_s;
};

/// `sum` over `num_steps` steps of this rank; `host` is where it is, `peak` its memory. Collective
/// on `world`; the result is for the root.
TimeReport gather_times(const comm::Communicator& world, const StepTimes& sum,
                        std::int64_t num_steps, const std::string& host,
                        const PeakBytes& peak = {});

/// Fields of a step's object in metrics.jsonl: "times": {...}, "sent_bytes": {...} and, with
/// several axes, "exposed_s": {...}, and "peak_bytes": {...} where memory was looked at.
std::string to_json_fields(const TimeReport& report);

/// For people: "a step: compute 1.20 s, ...; slowest: rank 3 on node2".
std::string to_string(const TimeReport& report);

}  // namespace finetune::metrics
