#pragma once
// SPDX-License-Identifier: Apache-2.0
// What steps waited for: the chain of work and collectives without which they would have been
// shorter.

#include <map>
#include <string>
#include <vector>

#include "trace/clocks.hpp"

namespace finetune::trace {

/// The longest that a rank waited at once for another.
struct LongestWait {
  double seconds = 0;
  int rank = 0;
  int for_rank = 0;
  std::string collective;  ///< "reduce_scatter fsdp"
  std::string subject;     ///< "layers.12"; may be empty
};

struct CriticalPath {
  double seconds = 0;  ///< of the steps
  /// By rank, of what its thread did: "backward", "optimizer"; what no span tells: "other".
  std::map<int, std::map<std::string, double>> work_s;
  /// By "all_gather fsdp": from where the last rank had come to its end. What a stream was busy
  /// with before one that waited for it counts too.
  std::map<std::string, double> collectives_s;
  LongestWait longest_wait;
};

/// Of the same steps on all ranks, whose clocks are aligned, as `alignment` says. On GPUs of the
/// threads that hand out work alone.
CriticalPath critical_path(const std::vector<RankTrace>& ranks, const Alignment& alignment = {});

/// Lines for people. `alignment` is of the same ranks.
std::string describe(const CriticalPath& path, const std::vector<RankTrace>& ranks,
                     const Alignment& alignment);

}  // namespace finetune::trace
