#pragma once
// SPDX-License-Identifier: Apache-2.0
// Jobs that are made up.

#include <string>

#include "preflight/detail/facts.hpp"
#include "preflight/detail/report.hpp"

namespace finetune::preflight {

/// Ranks node by node, each with a core of its own, all alike and in good health.
inline JobFacts healthy_job(int num_nodes, int ranks_per_node) {
  JobFacts job;
  for (int node = 0; node < num_nodes; ++node) {
    job.nodes.push_back("n" + std::to_string(node));
    for (int i = 0; i < ranks_per_node; ++i) {
      Facts& facts = job.ranks.emplace_back();
      facts.rank = node * ranks_per_node + i;
      facts.node = node;
      facts.program = "p";
      facts.mpi = "Open MPI v4.1.4";
      facts.memory_bytes = facts.host_memory_bytes = std::int64_t{8} << 30;
      facts.cpu = {.cores = {i},
                   .num_online = ranks_per_node + 1,
                   .numa_of_cores = {0},
                   .numa_of_memory = {0},
                   .num_numa = 1,
                   .threads = 1};
      facts.rates = {.bf16_tflops = 1, .fp32_tflops = 0.5, .memory_gb_per_s = 10};
      if (i > 0) continue;
      facts.of_node.is_from_leader = true;
      facts.of_node.disk = {.folder = "/scratch", .free_bytes = std::int64_t{1} << 40};
      facts.of_node.deck = "d";
    }
  }
  return job;
}

/// The first problem as a user reads it; empty without one.
inline std::string first_line(const Finding& finding) {
  return finding.problems.empty() ? "" : core::to_string(finding.problems.front().message);
}

inline bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace finetune::preflight
