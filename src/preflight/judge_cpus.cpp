// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "preflight/detail/cpus.hpp"
#include "preflight/judge.hpp"

namespace finetune::preflight {
namespace {

// Of one core. A rank waits for its slowest thread, and all others for the slowest rank.
constexpr double foreign_warning = 0.1;
constexpr double foreign_bad = 0.3;

constexpr const char* bind_cores =
    "Bind each rank to cores of its own: srun --cpu-bind=cores --cpus-per-task=N, or mpirun "
    "--map-by ppr:M:node:pe=N --bind-to core.";

std::vector<std::string> numbers(const std::vector<int>& ranks) {
  std::vector<std::string> texts;
  for (const int rank : ranks)
    texts.push_back(std::to_string(rank));
  return texts;
}

/// Ranks of one node by the cores they may use.
using Sets = std::map<std::vector<int>, std::vector<int>>;

/// Cores of which ranks with different sets have a part.
std::set<int> overlaps(const Sets& sets) {
  std::map<int, int> owners;
  std::set<int> shared;
  for (const auto& [cores, ranks] : sets) {
    for (const int core : cores)
      if (++owners[core] > 1) shared.insert(core);
  }
  return shared;
}

void judge_sharing(const JobFacts& job, const std::string& node, const Sets& sets,
                   const CpuFacts& first, Finding& finding) {
  if (sets.size() == 1 && sets.begin()->second.size() > 1 && sets.begin()->first.size() == 1 &&
      first.num_online > 1) {
    finding.fail({node,
                  fmt::format("all {} ranks are bound to core {}", sets.begin()->second.size(),
                              sets.begin()->first.front()),
                  fmt::format("they take turns on one of {} cores", first.num_online), bind_cores});
    return;
  }
  for (const auto& [cores, ranks] : sets) {
    if (ranks.size() <= cores.size()) continue;
    const core::Message message{fmt::format("{}: ranks {}", node, some_of(numbers(ranks))),
                                fmt::format("share {} core{} ({})", cores.size(),
                                            cores.size() == 1 ? "" : "s", list_text(cores)),
                                "they take turns", bind_cores};
    // Without binding it is how somebody tries out a job on a laptop.
    if (is_bound(first) || job.is_full) {
      finding.warn(message);
    } else {
      finding.note(message);
    }
  }
  const std::set<int> shared = overlaps(sets);
  if (!shared.empty()) {
    finding.warn({node,
                  fmt::format("ranks with different bindings share cores {}",
                              list_text({shared.begin(), shared.end()})),
                  "they take turns on them", bind_cores});
  }
}

void judge_rank(const JobFacts& job, const Facts& facts, std::size_t ranks_on_node,
                Finding& finding) {
  const CpuFacts& cpu = facts.cpu;
  const std::string where = fmt::format("{}: rank {}", job.node_of(facts), facts.rank);
  if (job.is_full && cpu.threads > static_cast<int>(cpu.cores.size()) && !cpu.cores.empty()) {
    finding.warn(
        {where, fmt::format("computes with {} threads on {} cores", cpu.threads, cpu.cores.size()),
         "they take turns", "Set OMP_NUM_THREADS to the number of its cores."});
  }
  std::vector<int> near;
  std::ranges::set_intersection(cpu.numa_of_cores, cpu.numa_of_memory, std::back_inserter(near));
  if (near.empty() && !cpu.numa_of_cores.empty() && !cpu.numa_of_memory.empty()) {
    finding.warn({where,
                  fmt::format("its memory comes from NUMA node {}", list_text(cpu.numa_of_memory)),
                  fmt::format("its cores are on {}", list_text(cpu.numa_of_cores)),
                  "Bind memory where the cores are: srun --mem-bind=local."});
  } else if (job.is_full && cpu.numa_of_cores.size() > 1 && cpu.num_numa > 1 &&
             ranks_on_node >= static_cast<std::size_t>(cpu.num_numa)) {
    finding.warn({where,
                  fmt::format("its cores are on NUMA nodes {}", list_text(cpu.numa_of_cores)),
                  "memory written by one core is far from the others", bind_cores});
  }
}

}  // namespace

Finding judge_binding(const JobFacts& job) {
  Finding finding{.subject = "cores", .text = {}};
  std::size_t fewest = std::string::npos, most = 0;
  const auto of_nodes = job.by_node();
  for (std::size_t node = 0; node < of_nodes.size(); ++node) {
    Sets sets;
    for (const std::size_t i : of_nodes[node]) {
      const Facts& facts = job.ranks[i];
      sets[facts.cpu.cores].push_back(facts.rank);
      fewest = std::min(fewest, facts.cpu.cores.size());
      most = std::max(most, facts.cpu.cores.size());
    }
    judge_sharing(job, job.nodes[node], sets, job.ranks[of_nodes[node].front()].cpu, finding);
    // One a node: its ranks are bound in one way.
    const std::size_t before = finding.problems.size();
    for (const std::size_t i : of_nodes[node]) {
      judge_rank(job, job.ranks[i], of_nodes[node].size(), finding);
      if (finding.problems.size() > before) break;
    }
  }
  const CpuFacts& first = job.ranks.front().cpu;
  finding.text =
      fmt::format("{} of {} cores per rank ({}), {} thread{}",
                  fewest == most ? fmt::format("{}", most) : fmt::format("{} to {}", fewest, most),
                  first.num_online, is_bound(first) ? "bound" : "not bound", first.threads,
                  first.threads == 1 ? "" : "s");
  shorten(finding);
  return finding;
}

Finding judge_load(const JobFacts& job) {
  Finding finding{.subject = "load", .text = {}};
  const auto of_nodes = job.by_node();
  double most = 0;
  for (const Facts* leader : job.leaders()) {
    for (const std::size_t i : of_nodes[static_cast<std::size_t>(leader->node)]) {
      const Facts& facts = job.ranks[i];
      const CoreLoad* worst = nullptr;
      for (const CoreLoad& load : leader->of_node.loads) {
        if (std::ranges::find(facts.cpu.cores, load.core) == facts.cpu.cores.end()) continue;
        if (worst == nullptr || load.foreign > worst->foreign) worst = &load;
      }
      if (worst == nullptr) continue;
      most = std::max(most, worst->foreign);
      if (worst->foreign < foreign_warning) continue;
      // Who is not bound can go to another core.
      const bool is_bad = worst->foreign >= foreign_bad && is_bound(facts.cpu);
      finding.problems.push_back(
          {is_bad ? Grade::bad : Grade::warning,
           {fmt::format("{}: rank {}", job.node_of(facts), facts.rank),
            fmt::format("other processes compute on its core {}", worst->core),
            fmt::format("they take {:.0f} % of it, and all ranks wait for the slowest",
                        100 * worst->foreign),
            "Look with top on that node; ask for whole nodes (--exclusive), or bind elsewhere."}});
      if (!is_bound(facts.cpu)) break;
    }
  }
  finding.text = fmt::format("other processes take at most {:.0f} % of a rank's core", 100 * most);
  shorten(finding);
  return finding;
}

}  // namespace finetune::preflight
