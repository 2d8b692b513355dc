#pragma once
// SPDX-License-Identifier: Apache-2.0
// From facts to findings: pure functions, so that a thousand nodes can be made up. Nodes are called
// by their names; where they differ, the majority is right.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "preflight/detail/facts.hpp"
#include "preflight/detail/report.hpp"

namespace finetune::preflight {

/// What the deck says the job should be; 0: anything.
struct Expected {
  std::int64_t nodes = 0;
  std::int64_t ranks_per_node = 0;
};

/// Ranks, nodes, ranks per node.
Finding judge_launch(const JobFacts& job, const Expected& expected);

/// The same, knowing only where the ranks are.
Finding judge_launch(const comm::Topology& topology, const Expected& expected);

/// The same binary on all ranks, and the same MPI and NCCL.
Finding judge_program(const JobFacts& job);

/// The deck's file, as each node has it, compared with the text that counts (rank 0's).
Finding judge_deck(const JobFacts& job, const std::string& deck);

/// Cores: several ranks on one, more threads than cores, memory of other NUMA nodes.
Finding judge_binding(const JobFacts& job);

/// Cores of ranks on which other processes compute.
Finding judge_load(const JobFacts& job);

/// What a rank needs, compared with what is there.
struct MemoryNeed {
  std::int64_t bytes = 0;       ///< where the rank computes
  std::int64_t host_bytes = 0;  ///< and in addition in host memory
  bool on_gpu = false;
  std::string remedy = {};  ///< for ranks that have too little
};
Finding judge_memory(const JobFacts& job, const MemoryNeed& need);

/// GPUs: alike, healthy, not slowed down, with no other process on them. Errors of memory that
/// nobody corrected, memory that waits to be taken out of use and GPUs that are lost are faults of
/// their node; what the hardware slows down is warned of, what keeps to limits noted. What is wrong
/// with those that no rank computes on is noted only, unless they are lost, and with all of them if
/// the job computes on the CPU. Before the ranks have chosen theirs, all of a node count as the
/// job's.
Finding judge_gpus(const JobFacts& job);

struct DiskNeed {
  std::int64_t checkpoint_bytes = 0;
  std::int64_t num_kept = 1;   ///< checkpoints that stay
  std::int64_t num_there = 0;  ///< of them, already
};
Finding judge_disk(const JobFacts& job, const DiskNeed& need);

/// Wall clocks that are apart.
Finding judge_clocks(const JobFacts& job);

/// Whether some rank computes or copies so slowly that judge_rates would tell: worth a second look.
bool has_slow_rank(std::span<const MeasuredRates> rates);

/// Ranks that compute or copy much slower than the others do. Bad only if it cannot be chance:
/// among three ranks or more, of one that is bound to its cores or computes on a GPU.
Finding judge_rates(const JobFacts& job);

}  // namespace finetune::preflight
