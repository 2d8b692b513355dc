// SPDX-License-Identifier: Apache-2.0
#include "preflight/check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/network.hpp"
#include "comm/versions.hpp"
#include "core/clock.hpp"
#include "core/fault.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "preflight/detail/clocks.hpp"
#include "preflight/detail/cpus.hpp"
#include "preflight/detail/disk.hpp"
#include "preflight/detail/files.hpp"
#include "preflight/detail/links.hpp"
#include "preflight/detail/program.hpp"
#include "preflight/detail/rates.hpp"
#include "preflight/machine.hpp"

namespace finetune::preflight {
namespace {

constexpr double load_s = 0.3;
// Small beside a checkpoint, and more than a network file system takes in one message.
constexpr std::int64_t full_probe_bytes = std::int64_t{64} << 20;
constexpr std::int64_t most_probe_bytes = std::int64_t{64} << 30;  // of all nodes together
constexpr std::int64_t most_sweep_bytes = std::int64_t{256} << 20;

Facts own_facts(const comm::Environment& environment) {
  Facts facts;
  facts.rank = environment.world().rank();
  facts.node = environment.topology().node_of_rank[static_cast<std::size_t>(facts.rank)];
  return facts;
}

std::vector<Facts> gather(const comm::Communicator& world, const Facts& own) {
  std::vector<Facts> all;
  for (const std::string& text : world.gather_text(to_text(own)))
    all.push_back(facts_from_text(text));
  return all;
}

std::string deck_hash(const std::string& deck) {
  try {
    return sampled_hash(deck, whole_file_bytes);
  } catch (const std::exception&) {
    return {};
  }
}

/// Much less than there is: others need memory too, and the check must not be what takes the last.
std::int64_t buffer_bytes(const CheckInput& request) {
  return std::min(request.memory_bytes, request.host_memory_bytes > 0 ? request.host_memory_bytes
                                                                      : request.memory_bytes) /
         8;
}

/// What is measured by all ranks together, at the first rank.
struct Measured {
  std::vector<Link> links;
  std::vector<Sweep> sweeps;
  std::vector<std::vector<double>> sweep_s;  ///< [sweeps][ranks]
};

std::vector<std::vector<double>> times_of_ranks(const comm::Communicator& world,
                                                const std::vector<Sweep>& sweeps) {
  std::vector<std::vector<double>> all;
  for (const Sweep& sweep : sweeps) {
    const double own = sweep.points.empty() ? 0 : sweep.points.back().own_s;
    std::vector<double> times(static_cast<std::size_t>(world.size()));
    world.all_gather(core::DType::f64, &own, times.data(), 1);
    all.push_back(std::move(times));
  }
  return all;
}

/// Whether the ranks of a node have fewer cores than threads that compute. Collective on `node`.
bool share_cores(const comm::Communicator& node, const CpuFacts& cpu) {
  const int own_last = cpu.cores.empty() ? -1 : *std::ranges::max_element(cpu.cores);
  const std::int64_t last = node.all_reduce(std::int64_t{own_last}, comm::Reduce::max);
  std::vector<std::int64_t> is_used(static_cast<std::size_t>(last + 1), 0);
  for (const int core : cpu.cores)
    is_used[static_cast<std::size_t>(core)] = 1;
  node.all_reduce(std::span(is_used), comm::Reduce::max);
  return std::ranges::count(is_used, 1) < std::int64_t{node.size()} * cpu.threads;
}

/// A plan computes with what a run of its own reaches, the judges look at what passes. Nodes may be
/// containers of one machine, and not know whose cores they share: then only what passes tells.
/// Collective on the environment's node.
Timing timing_of(const comm::Environment& environment, const CheckInput& request,
                 const CpuFacts& cpu) {
  const bool has_own_cores = !share_cores(environment.node(), cpu);
  const bool is_alone = environment.topology().num_nodes == 1;
  return request.saves_rates && has_own_cores && is_alone ? Timing::computing : Timing::wall;
}

Measuring measuring(const CheckInput& request, Timing timing) {
  return {request.device, buffer_bytes(request), timing, request.bf16_path};
}

/// What each rank reaches, while all compute; once more if some are slow: what passes is no fault
/// of the machine. Collective on `world`.
MeasuredRates measure_rates_of_all(const comm::Communicator& world, const CheckInput& request,
                                   Timing timing) {
  const Measuring how = measuring(request, timing);
  world.barrier();
  const MeasuredRates first = measure_rates(how);
  std::vector<MeasuredRates> all(static_cast<std::size_t>(world.size()));
  static_assert(sizeof(MeasuredRates) % sizeof(double) == 0, "only numbers of type double");
  world.all_gather(core::DType::f64, &first, all.data(), sizeof(MeasuredRates) / sizeof(double));
  if (!has_slow_rank(all)) return first;
  world.barrier();
  return best_of(first, measure_rates(how));
}

Measured measure(const comm::Environment& environment, const comm::Communicator& leaders,
                 const CheckInput& request, Timing timing) {
  Measured measured;
  const comm::Communicator& world = environment.world();
  if (environment.topology().num_nodes > 1 && environment.node().is_root())
    measured.links = gather_links(leaders, measure_links(leaders));
  world.barrier();
  const std::int64_t most_bytes = std::min(most_sweep_bytes, buffer_bytes(request));
  if (request.device.index >= 0) timing = Timing::wall;
  for (const auto& [name, group] : request.groups) {
    const auto sweeps = measure_sweeps(world, *group, request.device, name, most_bytes, timing);
    measured.sweeps.insert(measured.sweeps.end(), sweeps.begin(), sweeps.end());
  }
  measured.sweep_s = times_of_ranks(world, measured.sweeps);
  return measured;
}

/// Versions, settings and the interface that leads from node to node.
Finding judge_network(const JobFacts& job, const CheckInput& request) {
  Finding finding{.subject = "network", .text = {}};
  std::vector<std::vector<comm::Interface>> nodes;
  for (const Facts* leader : job.leaders())
    nodes.push_back(comm::interfaces_from_text(leader->of_node.interfaces));
  if (nodes.size() > 1) {
    const auto chosen = comm::common_interface(nodes);
    finding.text = chosen ? fmt::format("the nodes reach each other over {}", *chosen)
                          : "no interface has one name on all nodes";
  } else {
    finding.text = "one node";
  }
  std::vector<std::string> variables;
  for (const Facts& facts : job.ranks)
    variables.push_back(facts.nccl_variables);
  const Minority odd = odd_ones(variables);
  for (const std::size_t i : odd.odd) {
    finding.warn({fmt::format("{}: rank {}", job.node_of(job.ranks[i]), job.ranks[i].rank),
                  "has other NCCL_* variables than most ranks",
                  fmt::format("\"{}\", rank {} has \"{}\"", core::one_line(variables[i]),
                              job.ranks[odd.usual].rank, core::one_line(variables[odd.usual])),
                  "Set them for all ranks or for none."});
  }
  const auto exports = comm::plan_nccl_exports(request.nccl, comm::nccl_environment());
  // Said as warnings when they were set (comm::prepare_nccl).
  for (const std::string& warning : exports.warnings)
    finding.note({"", warning, "", ""});
  std::string set = core::one_line(variables[odd.usual]);
  if (!set.empty()) finding.text += "; " + set;
  shorten(finding);
  return finding;
}

std::string nccl_variables() {
  std::string text;
  for (const auto& [name, value] : comm::nccl_environment())
    text += (text.empty() ? "" : " ") + name + "=" + value;
  return text;
}

NodeFacts look_at_node(const comm::Communicator& leaders, const FirstLook& beginning,
                       const CheckInput& request) {
  NodeFacts node;
  const bool is_full = request.level == CheckDepth::full;
  node.is_from_leader = true;
  node.deck = deck_hash(request.deck);
  node.interfaces = is_full ? comm::to_text(comm::interfaces_here()) : "";
  node.gpus = beginning.nvml.gpus;
  node.has_nvml = beginning.nvml.has_library;
  node.clock_offset_s = clock_offset_s(leaders);
  const std::int64_t bytes = std::min(full_probe_bytes, most_probe_bytes / leaders.size());
  const std::int64_t free =
      leaders.all_reduce(free_bytes(existing_folder(request.output)), comm::Reduce::min);
  const bool has_room = free > 4 * bytes * leaders.size();
  node.disk = look_at_disk(leaders, request.output, !is_full ? 0 : has_room ? bytes : 1);
  return node;
}

}  // namespace

FirstLook begin(const comm::Environment& environment, CheckDepth level) {
  FirstLook beginning;
  core::fault::hit("check.begin");
  Facts own = own_facts(environment);
  own.program = program_hash();
  own.mpi = comm::mpi_version();
  own.nccl = comm::nccl_version();
  own.num_gpus = comm::num_gpus();
  if (environment.node().is_root()) {
    if (level == CheckDepth::full) beginning.nvml = ask_nvml();
    own.of_node.is_from_leader = true;
    own.of_node.gpus = beginning.nvml.gpus;
    own.of_node.has_nvml = beginning.nvml.has_library;
  }
  const comm::Communicator& world = environment.world();
  const JobFacts job{.nodes = names_of(environment.topology()),
                     .ranks = gather(world, own),
                     .are_devices_chosen = false};
  if (world.is_root()) beginning.program = judge_program(job);
  if (world.is_root() && level == CheckDepth::full) beginning.gpus = judge_gpus(job);
  const std::int64_t differs = beginning.program.grade() == Grade::bad ? 1 : 0;
  beginning.is_same_program = world.all_reduce(differs, comm::Reduce::max) == 0;
  return beginning;
}

CheckResult check(const comm::Environment& environment, const FirstLook& beginning,
                  const CheckInput& request) {
  const comm::Communicator& world = environment.world();
  const bool is_full = request.level == CheckDepth::full;
  const bool is_leader = environment.node().is_root();
  const std::vector<std::string> names = names_of(environment.topology());
  const comm::Communicator leaders =
      world.split(is_leader ? 0 : 1, world.rank(), "leaders", comm::Communicator::Watched::no);
  Facts own = own_facts(environment);
  own.memory_bytes = request.memory_bytes;
  own.host_memory_bytes = request.host_memory_bytes;
  // Of a job on CPUs none counts, whatever CUDA sees.
  own.num_gpus = request.device.index < 0 ? 0 : comm::num_gpus();
  own.gpu = request.device.uuid;
  own.nccl_variables = nccl_variables();
  own.cpu = cpus_here(request.threads);
  Finding files;
  if (is_leader) {
    own.of_node = look_at_node(leaders, beginning, request);
    files = check_files(leaders, names, request.files, !is_full);
  }
  Measured measured;
  if (is_full) {
    core::fault::hit("check.measure");
    own.of_node.loads = foreign_loads(environment.node(), load_s);
    const Timing timing = timing_of(environment, request, own.cpu);
    own.rates = measure_rates_of_all(world, request, timing);
    if (request.saves_rates) {
      world.barrier();
      measure_kernels(measuring(request, timing), own.rates);
    }
    measured = measure(environment, leaders, request, timing);
  }
  const JobFacts job{names, gather(world, own), is_full};
  CheckResult outcome;
  if (world.is_root()) {
    auto& findings = outcome.report.findings;
    findings = {judge_launch(job, request.expected), beginning.program,
                judge_deck(job, request.deck), files, judge_binding(job)};
    if (is_full) findings.push_back(judge_load(job));
    if (is_full) findings.push_back(judge_gpus(job));
    findings.push_back(judge_memory(job, request.memory));
    findings.push_back(judge_disk(job, request.disk));
    findings.push_back(judge_clocks(job));
    if (is_full) {
      findings.push_back(judge_network(job, request));
      findings.push_back(judge_links(names, measured.links, request.least_gbit_per_s));
      findings.push_back(judge_sweeps(job, measured.sweeps, measured.sweep_s));
      findings.push_back(judge_rates(job));
      outcome.machine = machine_of(job, measured.links, measured.sweeps);
    }
    outcome.exit_code = outcome.report.exit_code();
  }
  outcome.exit_code =
      static_cast<int>(world.all_reduce(std::int64_t{outcome.exit_code}, comm::Reduce::max));
  return outcome;
}

void print(const Report& report, const std::string& title) {
  if (!log::is_root()) return;
  log::info(title);
  log::info(to_string(report));
  for (const std::string& line : report.lines(Grade::warning))
    log::warn(line);
  for (const std::string& line : report.lines(Grade::bad))
    log::error(line);
  log::info(report.verdict());
}

}  // namespace finetune::preflight
