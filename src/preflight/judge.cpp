// SPDX-License-Identifier: Apache-2.0
#include "preflight/judge.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "core/text.hpp"

namespace finetune::preflight {
namespace {

// Files carry the time of the node that wrote them; munge, which lets Slurm's daemons trust each
// other, refuses credentials that are minutes off.
constexpr double clocks_apart_warning_s = 1;
constexpr double clocks_apart_bad_s = 60;

std::string plural(std::int64_t count, const char* word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

/// "node2 (rank 3)"
std::string rank_on(const JobFacts& job, const Facts& facts) {
  return fmt::format("{}: rank {}", job.node_of(facts), facts.rank);
}

/// One problem a node whose ranks have another value than most.
template <typename Value>
void require_alike(const JobFacts& job, const char* what, const Value& value_of, const char* remedy,
                   Finding& finding) {
  std::vector<std::string> values;
  for (const Facts& facts : job.ranks)
    values.push_back(value_of(facts));
  const Minority odd = odd_ones(values);
  std::set<int> told;
  for (const std::size_t i : odd.odd) {
    const Facts& facts = job.ranks[i];
    if (!told.insert(facts.node).second) continue;
    const Facts& usual = job.ranks[odd.usual];
    finding.fail({rank_on(job, facts), fmt::format("has another {}", what),
                  fmt::format("\"{}\", rank {} on {} has \"{}\"", values[i], usual.rank,
                              job.node_of(usual), values[odd.usual]),
                  remedy});
  }
}

}  // namespace

Finding judge_launch(const JobFacts& job, const Expected& expected) {
  Finding finding{.subject = "launch", .text = {}};
  const auto num_nodes = std::ssize(job.nodes);
  const auto of_nodes = job.by_node();
  std::vector<std::string> counts;
  std::int64_t least = std::ssize(job.ranks), most = 0;
  for (const auto& ranks : of_nodes) {
    counts.push_back(std::to_string(ranks.size()));
    least = std::min<std::int64_t>(least, std::ssize(ranks));
    most = std::max<std::int64_t>(most, std::ssize(ranks));
  }
  finding.text = fmt::format(
      "{} on {}, {} per node", plural(std::ssize(job.ranks), "rank"), plural(num_nodes, "node"),
      least == most ? std::to_string(least) : fmt::format("{} to {}", least, most));
  if (expected.nodes > 0 && expected.nodes != num_nodes) {
    finding.fail({"launch", fmt::format("the job has {}", plural(num_nodes, "node")),
                  fmt::format("parallel.expect_nodes = {}; there are {}", expected.nodes,
                              some_of(job.nodes)),
                  "Look at what the scheduler gave, or change the deck."});
  }
  const Minority odd = odd_ones(counts);
  for (std::size_t node = 0; node < of_nodes.size(); ++node) {
    const std::int64_t count = std::ssize(of_nodes[node]);
    const std::string has = fmt::format("has {}", plural(count, "rank"));
    if (expected.ranks_per_node > 0 && count != expected.ranks_per_node) {
      finding.fail({job.nodes[node], has,
                    fmt::format("parallel.expect_ranks_per_node = {}", expected.ranks_per_node),
                    "Change how the job is started, or the deck."});
    } else if (expected.ranks_per_node == 0 && std::ranges::find(odd.odd, node) != odd.odd.end()) {
      finding.warn({job.nodes[node], has,
                    fmt::format("{} has {}", job.nodes[odd.usual], counts[odd.usual]),
                    "Start as many ranks on every node."});
    }
  }
  shorten(finding);
  return finding;
}

Finding judge_launch(const comm::Topology& topology, const Expected& expected) {
  JobFacts job{names_of(topology), {}};
  for (int rank = 0; rank < topology.world_size; ++rank) {
    Facts& facts = job.ranks.emplace_back();
    facts.rank = rank;
    facts.node = topology.node_of_rank[static_cast<std::size_t>(rank)];
  }
  return judge_launch(job, expected);
}

Finding judge_program(const JobFacts& job) {
  Finding finding{.subject = "program", .text = {}};
  require_alike(
      job, "program (the file that runs)", [](const Facts& f) { return f.program; },
      "Install the same binary on every node, or on a file system that all share.", finding);
  require_alike(
      job, "MPI library", [](const Facts& f) { return f.mpi; },
      "Load the same modules on every node.", finding);
  require_alike(
      job, "NCCL", [](const Facts& f) { return f.nccl; }, "Load the same modules on every node.",
      finding);
  const Facts& first = job.ranks.front();
  finding.text = fmt::format("{}, {}{}", first.program.substr(0, 12), first.mpi,
                             first.nccl.empty() ? "" : ", NCCL " + first.nccl);
  shorten(finding);
  return finding;
}

Finding judge_deck(const JobFacts& job, const std::string& deck) {
  Finding finding{.subject = "deck", .text = deck};
  const auto leaders = job.leaders();
  std::vector<std::string> hashes;
  std::vector<std::string> without;
  for (const Facts* facts : leaders) {
    hashes.push_back(facts->of_node.deck.empty() ? leaders.front()->of_node.deck
                                                 : facts->of_node.deck);
    if (facts->of_node.deck.empty()) without.push_back(job.node_of(*facts));
  }
  const Minority odd = odd_ones(hashes);
  for (const std::size_t i : odd.odd) {
    finding.fail({fmt::format("{}: {}", job.node_of(*leaders[i]), deck),
                  "is not the deck of the other nodes",
                  fmt::format("its hash is {}, on {} it is {}", hashes[i],
                              job.node_of(*leaders[odd.usual]), hashes[odd.usual]),
                  "Copy it to this node again, or use a file system that all nodes share."});
  }
  if (!without.empty()) {
    finding.note({some_of(without), "do not see the deck", "rank 0's text is used everywhere", ""});
    finding.text += fmt::format("; not seen on {}, which take rank 0's", some_of(without));
  }
  shorten(finding);
  return finding;
}

Finding judge_memory(const JobFacts& job, const MemoryNeed& need) {
  Finding finding{.subject = "memory", .text = {}};
  const auto by_bytes = [](const Facts& a, const Facts& b) {
    return a.memory_bytes < b.memory_bytes;
  };
  const Facts& least = *std::ranges::min_element(job.ranks, by_bytes);
  finding.text = fmt::format("{} per rank{} needed; {} has the least, {}",
                             core::human_bytes(need.bytes), need.on_gpu ? " on its GPU" : "",
                             job.node_of(least), core::human_bytes(least.memory_bytes));
  std::set<int> told;
  for (const Facts& facts : job.ranks) {
    const bool fits = facts.memory_bytes >= need.bytes;
    const bool host_fits = facts.host_memory_bytes >= need.host_bytes || need.host_bytes == 0;
    if ((fits && host_fits) || !told.insert(facts.node).second) continue;
    finding.fail(
        {rank_on(job, facts),
         fmt::format("needs {} of {}memory per rank",
                     core::human_bytes(fits ? need.host_bytes : need.bytes), fits ? "host " : ""),
         fmt::format("{} are there",
                     core::human_bytes(fits ? facts.host_memory_bytes : facts.memory_bytes)),
         fits ? "Ask for more memory per node, put fewer ranks on each, or use more nodes."
              : need.remedy});
  }
  shorten(finding);
  return finding;
}

Finding judge_disk(const JobFacts& job, const DiskNeed& need) {
  Finding finding{.subject = "output", .text = {}};
  const auto leaders = job.leaders();
  const Facts* least = nullptr;
  double write = 0, read = 0;
  for (const Facts* facts : leaders) {
    const DiskFacts& disk = facts->of_node.disk;
    write += disk.write_gb_per_s;
    read += disk.read_gb_per_s;
    const std::string where =
        fmt::format("{}: {}", job.node_of(*facts), core::one_line(disk.folder));
    if (!disk.problem.empty()) {
      finding.fail({where, "cannot be written to", disk.problem,
                    "Set train.output to a folder that all nodes may write to."});
    } else if (!disk.sees_root) {
      finding.fail({where, "is not the folder that rank 0 sees",
                    "a file that rank 0 created does not appear there; each checkpoint has files "
                    "of all nodes",
                    "Set train.output to a folder on a file system that all nodes share."});
    }
    if (disk.free_bytes < 0) continue;
    if (least == nullptr || disk.free_bytes < least->of_node.disk.free_bytes) least = facts;
  }
  finding.text = leaders.front()->of_node.disk.folder;
  if (write > 0)
    finding.text += fmt::format(", all nodes write {:.2f} GB/s, read {:.2f}", write, read);
  if (least == nullptr) {
    shorten(finding);
    return finding;
  }
  const std::int64_t free = least->of_node.disk.free_bytes;
  finding.text += fmt::format(", {} free; a checkpoint takes {}", core::human_bytes(free),
                              core::human_bytes(need.checkpoint_bytes));
  // A new one is written beside those that stay.
  const std::int64_t num = std::max<std::int64_t>(1, need.num_kept + 1 - need.num_there);
  const std::string where =
      fmt::format("{}: {}", job.node_of(*least), core::one_line(least->of_node.disk.folder));
  const std::string has = fmt::format("has {} free", core::human_bytes(free));
  if (free < need.checkpoint_bytes) {
    finding.fail({where, has,
                  fmt::format("a checkpoint takes {}", core::human_bytes(need.checkpoint_bytes)),
                  "Make room, or set train.output to another file system."});
  } else if (free / num < need.checkpoint_bytes) {
    finding.warn({where, has,
                  fmt::format("{} more checkpoints of {} are to be written before one is removed",
                              num, core::human_bytes(need.checkpoint_bytes)),
                  "Make room, or lower checkpoint.save_total_limit."});
  }
  shorten(finding);
  return finding;
}

Finding judge_clocks(const JobFacts& job) {
  Finding finding{.subject = "clocks", .text = {}};
  const auto leaders = job.leaders();
  // Apart from the median: rank 0's own clock may be the one that is wrong.
  std::vector<double> offsets;
  for (const Facts* facts : leaders)
    offsets.push_back(facts->of_node.clock_offset_s);
  std::vector<double> sorted = offsets;
  std::ranges::sort(sorted);
  const double median = sorted[(sorted.size() - 1) / 2];
  double most = 0;
  for (std::size_t i = 0; i < leaders.size(); ++i) {
    const double apart = offsets[i] - median;
    most = std::max(most, std::abs(apart));
    if (std::abs(apart) < clocks_apart_warning_s) continue;
    const bool is_bad = std::abs(apart) >= clocks_apart_bad_s;
    finding.problems.push_back(
        {is_bad ? Grade::bad : Grade::warning,
         {job.node_of(*leaders[i]),
          fmt::format("its clock is {:.1f} s {}", std::abs(apart), apart > 0 ? "ahead" : "behind"),
          "file times say which file is newer",
          "Ask the administrator to look at the time service (chrony, ntp) of this node."}});
  }
  finding.text =
      leaders.size() == 1 ? "one node" : fmt::format("at most {:.1f} ms apart", 1e3 * most);
  shorten(finding);
  return finding;
}

namespace {

// Of the median. Machines of one kind differ by a few per cent; a GPU or a node that is throttled
// or shared loses much more, and all others wait for it in every step.
constexpr double slow_warning = 0.8;
constexpr double slow_bad = 0.5;

constexpr std::array compared_rates = {&MeasuredRates::bf16_tflops, &MeasuredRates::fp32_tflops,
                                       &MeasuredRates::memory_gb_per_s};

/// Ranks with company: others compute on their cores. That is what makes them slow, and judge_load
/// has said whether it is bad. One entry a rank.
std::vector<bool> have_company(const JobFacts& job) {
  std::vector<bool> result(job.ranks.size(), false);
  const auto of_nodes = job.by_node();
  for (const Facts* leader : job.leaders()) {
    std::set<int> busy;
    for (const CoreLoad& load : leader->of_node.loads)
      busy.insert(load.core);
    if (busy.empty()) continue;
    for (const std::size_t i : of_nodes[static_cast<std::size_t>(leader->node)])
      result[i] = std::ranges::any_of(job.ranks[i].cpu.cores,
                                      [&](int core) { return busy.contains(core); });
  }
  return result;
}

/// Who may go to any core is slow where the system has put it for a moment, and of two ranks
/// nobody can say which is the usual one.
bool may_refuse(const JobFacts& job, const Facts& facts) {
  return job.ranks.size() >= 3 && (facts.num_gpus > 0 || is_bound(facts.cpu));
}

double median_rate(std::span<const MeasuredRates> rates, double MeasuredRates::*member) {
  std::vector<double> values;
  for (const MeasuredRates& rank : rates)
    values.push_back(rank.*member);
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

std::vector<MeasuredRates> rates_of(const JobFacts& job) {
  std::vector<MeasuredRates> rates;
  for (const Facts& facts : job.ranks)
    rates.push_back(facts.rates);
  return rates;
}

void judge_rate(const JobFacts& job, const char* what, const char* unit,
                double MeasuredRates::*member, const std::vector<bool>& company, Finding& finding) {
  const double median = median_rate(rates_of(job), member);
  if (median <= 0) return;
  finding.text +=
      fmt::format("{}{} {:.3g} {}", finding.text.empty() ? "" : ", ", what, median, unit);
  std::set<int> told;
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    const Facts& facts = job.ranks[i];
    const double part = facts.rates.*member / median;
    if (part >= slow_warning || !told.insert(facts.node).second) continue;
    const bool is_bad = part < slow_bad && !company[i] && may_refuse(job, facts);
    finding.problems.push_back(
        {is_bad ? Grade::bad : Grade::warning,
         {rank_on(job, facts), fmt::format("{} at {:.3g} {}", what, facts.rates.*member, unit),
          fmt::format("{:.0f} % of the median, {:.3g}; all ranks wait for the slowest", 100 * part,
                      median),
          "Look for other processes, throttled clocks and memory on that node, or leave it out."}});
  }
}

/// Whether some cores are shared by ranks: then what one of them reaches is chance.
bool has_shared_cores(const JobFacts& job) {
  for (const auto& ranks : job.by_node()) {
    std::set<int> cores;
    for (const std::size_t i : ranks)
      cores.insert(job.ranks[i].cpu.cores.begin(), job.ranks[i].cpu.cores.end());
    if (cores.size() < ranks.size()) return true;
  }
  return false;
}

}  // namespace

bool has_slow_rank(std::span<const MeasuredRates> rates) {
  return std::ranges::any_of(compared_rates, [&](double MeasuredRates::*member) {
    const double least = slow_warning * median_rate(rates, member);
    return std::ranges::any_of(rates,
                               [&](const MeasuredRates& rank) { return rank.*member < least; });
  });
}

Finding judge_rates(const JobFacts& job) {
  Finding finding{.subject = "rates", .text = {}};
  const std::vector<bool> company = have_company(job);
  judge_rate(job, "bf16 products", "TFLOP/s", &MeasuredRates::bf16_tflops, company, finding);
  judge_rate(job, "fp32 products", "TFLOP/s", &MeasuredRates::fp32_tflops, company, finding);
  judge_rate(job, "memory", "GB/s", &MeasuredRates::memory_gb_per_s, company, finding);
  finding.text += " per rank (medians)";
  if (job.ranks.front().num_gpus == 0 && has_shared_cores(job)) {
    finding.problems.clear();
    finding.text += "; ranks share cores, so they are not compared";
  }
  shorten(finding);
  return finding;
}

}  // namespace finetune::preflight
