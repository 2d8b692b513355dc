// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/text.hpp"
#include "preflight/judge.hpp"

namespace finetune::preflight {
namespace {

constexpr const char* leave_out =
    "Leave the node out (sbatch --exclude), and tell the administrator.";

std::string gpu_on(const std::string& node, const Gpu& gpu) {
  return gpu.uuid.empty() ? fmt::format("{}: GPU {}", node, gpu.index)
                          : fmt::format("{}: GPU {} ({})", node, gpu.index, gpu.uuid);
}

/// The GPUs of a node that its ranks compute on, apart from those of others.
struct NodeGpus {
  std::vector<const Gpu*> own, others;
};

/// Those that answer.
std::vector<const Gpu*> all_of(const NodeFacts& node) {
  std::vector<const Gpu*> gpus;
  for (const Gpu& gpu : node.gpus)
    if (gpu.lost.empty()) gpus.push_back(&gpu);
  return gpus;
}

/// `uuids`: of the ranks on this node.
NodeGpus sort_gpus(const NodeFacts& node, const std::set<std::string>& uuids, bool is_on_cpu) {
  NodeGpus sorted;
  for (const Gpu* gpu : all_of(node))
    (!is_on_cpu && uuids.contains(gpu->uuid) ? sorted.own : sorted.others).push_back(gpu);
  // Not chosen yet, or parts of a GPU, which have names of their own.
  if (sorted.own.empty() && !is_on_cpu) sorted.own.swap(sorted.others);
  return sorted;
}

/// "H100, 1980 MHz, driver 535.1"
std::string kind_of(const std::vector<const Gpu*>& gpus) {
  const Gpu& first = *gpus.front();
  for (const Gpu* gpu : gpus)
    if (gpu->name != first.name) return "GPUs of several types";
  return fmt::format("{}, {} MHz, driver {}", first.name, first.clock_mhz, first.driver);
}

/// "4 x H100, 1980 MHz, driver 535.1"
std::string kinds_of(const NodeFacts& node) {
  const std::vector<const Gpu*> gpus = all_of(node);
  if (gpus.empty()) return node.has_nvml ? "no GPU" : "no GPU (and no NVML)";
  return fmt::format("{} x {}", gpus.size(), kind_of(gpus));
}

void judge_one(const std::string& node, const Gpu& gpu, Finding& finding) {
  const std::string where = gpu_on(node, gpu);
  if (gpu.uncorrected_errors > 0) {
    finding.fail({where, fmt::format("has {} uncorrected memory errors", gpu.uncorrected_errors),
                  "what it computes may be wrong", leave_out});
  }
  if (gpu.pending_pages > 0) {
    finding.fail({where, "has memory that is to be taken out of use",
                  "it waits for a reset of the GPU", leave_out});
  }
  if (!gpu.slowed_by_hardware.empty()) {
    finding.warn({where, fmt::format("is slowed down: {}", fmt::join(gpu.slowed_by_hardware, ", ")),
                  "all ranks wait for the slowest", leave_out});
  }
  if (!gpu.slowed_by_limits.empty()) {
    finding.note({where, fmt::format("keeps to a limit: {}", fmt::join(gpu.slowed_by_limits, ", ")),
                  "its clocks are lower than they could be", ""});
  }
  if (!gpu.foreign.empty()) {
    finding.fail({where, fmt::format("is used by {}", some_of(gpu.foreign)),
                  "it takes memory and time from the training",
                  "End these processes, or ask for whole nodes (--exclusive)."});
  }
  if (gpu.power_limit_w > 0 && gpu.power_limit_w < gpu.default_power_limit_w) {
    finding.warn({where, fmt::format("may take {} W", gpu.power_limit_w),
                  fmt::format("its usual limit is {} W", gpu.default_power_limit_w),
                  "Ask the administrator why its power is capped."});
  }
}

/// One that is lost may take its node with it, whoever it belongs to.
void judge_lost(const std::string& node, const NodeFacts& facts, Finding& finding) {
  for (const Gpu& gpu : facts.gpus)
    if (!gpu.lost.empty())
      finding.fail({gpu_on(node, gpu), gpu.lost,
                    "NVML lists it; the node's kernel log says why (dmesg | grep 'NVRM: Xid')",
                    leave_out});
}

/// Those whose free memory is far below that of most.
void judge_free_memory(const JobFacts& job, const std::vector<NodeGpus>& of_nodes,
                       Finding& finding) {
  std::vector<std::int64_t> free;
  for (const NodeGpus& node : of_nodes)
    for (const Gpu* gpu : node.own)
      if (gpu->free_bytes >= 0) free.push_back(gpu->free_bytes);
  if (free.empty()) return;
  std::ranges::sort(free);
  const std::int64_t median = free[free.size() / 2];
  const auto leaders = job.leaders();
  for (std::size_t i = 0; i < leaders.size(); ++i) {
    for (const Gpu* gpu : of_nodes[i].own) {
      if (gpu->free_bytes < 0 || gpu->free_bytes >= median - median / 20) continue;
      finding.warn({gpu_on(job.node_of(*leaders[i]), *gpu),
                    fmt::format("has {} of free memory", core::human_bytes(gpu->free_bytes)),
                    fmt::format("the others have {}", core::human_bytes(median)),
                    "Look with nvidia-smi who has taken it."});
    }
  }
}

/// GPUs of each leader's node.
std::vector<NodeGpus> sort_all(const JobFacts& job, bool is_on_cpu) {
  const auto ranks_of_nodes = job.by_node();
  std::vector<NodeGpus> sorted;
  for (const Facts* leader : job.leaders()) {
    std::set<std::string> uuids;
    for (const std::size_t i : ranks_of_nodes[static_cast<std::size_t>(leader->node)])
      if (!job.ranks[i].gpu.empty()) uuids.insert(job.ranks[i].gpu);
    sorted.push_back(sort_gpus(leader->of_node, uuids, is_on_cpu));
  }
  return sorted;
}

/// Other types are bad; other numbers are while nobody knows which of them the job will use.
void compare_nodes(const JobFacts& job, const std::vector<NodeGpus>& of_nodes, Finding& finding) {
  const auto leaders = job.leaders();
  std::vector<std::string> shown, used;
  for (std::size_t i = 0; i < leaders.size(); ++i) {
    shown.push_back(kinds_of(leaders[i]->of_node));
    const bool are_known = !leaders[i]->gpu.empty() && !of_nodes[i].own.empty();
    used.push_back(are_known ? kind_of(of_nodes[i].own) : shown.back());
  }
  const Minority odd = odd_ones(shown);
  const Minority odd_used = odd_ones(used);
  for (const std::size_t i : odd.odd) {
    const bool is_bad = std::ranges::find(odd_used.odd, i) != odd_used.odd.end();
    finding.problems.push_back({is_bad ? Grade::bad : Grade::note,
                                {job.node_of(*leaders[i]), "has other GPUs than the other nodes",
                                 fmt::format("{}; {} has {}", shown[i],
                                             job.node_of(*leaders[odd.usual]), shown[odd.usual]),
                                 leave_out}});
  }
  finding.text = shown[odd.usual] + (leaders.size() > 1 && odd.odd.empty() ? " on every node" : "");
}

void compare_ranks(const JobFacts& job, Finding& finding) {
  std::vector<std::string> seen;
  for (const Facts& facts : job.ranks)
    seen.push_back(std::to_string(facts.num_gpus));
  const Minority others = odd_ones(seen);
  for (const std::size_t i : others.odd) {
    const Facts& facts = job.ranks[i];
    finding.fail({fmt::format("{}: rank {}", job.node_of(facts), facts.rank),
                  fmt::format("sees {} GPUs", facts.num_gpus),
                  fmt::format("rank {} sees {}", job.ranks[others.usual].rank, seen[others.usual]),
                  "Look at CUDA_VISIBLE_DEVICES and at the driver of that node (nvidia-smi)."});
  }
}

}  // namespace

Finding judge_gpus(const JobFacts& job) {
  Finding finding{.subject = "GPUs", .text = {}};
  // Where a driver fails no rank sees any, although they are to compute on them.
  const bool is_on_cpu =
      job.are_devices_chosen &&
      std::ranges::all_of(job.ranks, [](const Facts& facts) { return facts.num_gpus == 0; });
  const std::vector<NodeGpus> of_nodes = sort_all(job, is_on_cpu);
  compare_nodes(job, of_nodes, finding);
  const auto leaders = job.leaders();
  Finding of_others;
  for (std::size_t i = 0; i < leaders.size(); ++i) {
    const std::string& node = job.node_of(*leaders[i]);
    for (const Gpu* gpu : of_nodes[i].own)
      judge_one(node, *gpu, finding);
    for (const Gpu* gpu : of_nodes[i].others)
      judge_one(node, *gpu, of_others);
    judge_lost(node, leaders[i]->of_node, finding);
  }
  judge_free_memory(job, of_nodes, finding);
  compare_ranks(job, finding);
  for (const CheckProblem& problem : of_others.problems)
    finding.note(problem.message);
  if (is_on_cpu) {
    for (CheckProblem& problem : finding.problems)
      problem.grade = Grade::note;
  }
  shorten(finding);
  return finding;
}

}  // namespace finetune::preflight
