// SPDX-License-Identifier: Apache-2.0
#include "plan/choice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"

namespace finetune::plan {
namespace {

void set_if_missing(double& rate, double usual) {
  if (rate <= 0) rate = usual;
}

std::string step_text(double seconds) {
  return seconds >= 1 ? fmt::format("{:.2f} s", seconds) : fmt::format("{:.1f} ms", 1e3 * seconds);
}

/// The one to take comes first: the fastest that leaves memory free, else the fastest that fits,
/// else the one that needs least.
void put_best_first(std::vector<Strategy>& strategies) {
  auto best = std::ranges::find_if(
      strategies, [](const Strategy& strategy) { return strategy.is_comfortable; });
  if (best == strategies.end() && !strategies.front().fits)
    best = std::ranges::min_element(strategies, {}, &Strategy::memory_bytes);
  if (best == strategies.end()) best = strategies.begin();
  std::rotate(strategies.begin(), best, best + 1);
}

std::string strategy_line(const char* name, const Strategy& strategy, const char* more) {
  return fmt::format("  {:<26} {:<17}{:>9} per step  {:>10} per rank{}\n", name, strategy.name(),
                     step_text(strategy.time.step_s), core::human_bytes(strategy.memory_bytes),
                     more);
}

/// Why the first was taken although the next is faster: it would fill the memory.
std::string sharding_reason(const std::vector<Strategy>& strategies) {
  const Strategy &best = strategies[0], &next = strategies[1];
  if (best.fits && next.fits && next.time.step_s < 0.99 * best.time.step_s)
    return fmt::format("{} would take {} less, but leaves too little of the memory free",
                       next.name(), step_text(best.time.step_s - next.time.step_s));
  return reason(strategies);
}

std::string sharding_text(const Choice& choice) {
  const auto& all = choice.strategies;
  if (all.size() < 2) {
    const std::int64_t ranks = all.front().mesh.size();
    return fmt::format(
        "  {:<26} {}: there is nothing to choose {}\n", "parallel.sharding", all.front().name(),
        ranks == 1 ? std::string("on one rank") : fmt::format("for one group of {} ranks", ranks));
  }
  return strategy_line("parallel.sharding", all[0], "  (taken)") +
         strategy_line("", all[1], all[1].fits ? "  (runner-up)" : "  (does not fit)") +
         fmt::format("  {:<26} {}.\n", "", sharding_reason(all));
}

/// Gathers two or four blocks ahead where that is faster and leaves room: what it needs more is
/// weights of so many blocks, next to everything that was chosen.
void prefetch_deeper(Choice& choice, const model::ParameterTable& table, const Site& site) {
  choice.request.parallel.prefetch = 1;
  PlanInput settled = choice.request;
  settled.chooses_activations = false;
  double step_s = plan_strategy(settled, table, site).time.step_s;
  for (const std::int64_t depth : {2, 4}) {
    settled.parallel.prefetch = depth;
    const Strategy strategy = plan_strategy(settled, table, site);
    if (!strategy.is_comfortable || strategy.time.step_s > 0.99 * step_s) return;
    choice.prefetch_saves_s += step_s - strategy.time.step_s;
    step_s = strategy.time.step_s;
    choice.request.parallel.prefetch = depth;
  }
}

void share_more(Choice& choice, const PlanInput& asked, const model::ParameterTable& table,
                const Site& site) {
  const OpenAxes open = sharing_axes(asked, table);
  if (!open.any()) return;
  std::vector<Strategy> meshes = compare_meshes(asked, table, site, open);
  if (meshes.empty() || !meshes.front().fits) return;
  put_best_first(meshes);
  choice.without_sharing = choice.strategies.front();
  choice.strategies = std::move(meshes);
}

std::string sharing_text(const Choice& choice, const Site& site) {
  const Strategy &taken = choice.strategies.front(), &without = *choice.without_sharing;
  return strategy_line("parallel", taken, "  (taken)") +
         fmt::format(
             "  {:<26} ranks share more than shards of weights, because {} needs {} of {} "
             "per rank{}.\n",
             "", without.name(),
             core::human_bytes(without.fits_device ? without.host_bytes : without.memory_bytes),
             core::human_bytes(without.fits_device ? site.available_host_bytes
                                                   : site.available_bytes),
             without.fits_device ? " of the host's memory" : "");
}

/// Of a column of descriptions.
template <typename Descriptions>
std::size_t width_of(std::size_t least, const Descriptions& all, std::int64_t num_blocks) {
  for (const WayToKeep& way : all)
    least = std::max(least, describe_recomputation(way, num_blocks).size());
  return least;
}

std::string batches_text(const Choice& choice) {
  std::string text;
  std::vector<WayToKeep> ways;
  for (const Strategy& batch : choice.batches)
    ways.push_back(way_of(batch.request));
  const std::size_t width = width_of(27, ways, choice.request.architecture.num_layers);
  const char* name = "train.micro_batch";
  for (const Strategy& batch : choice.batches) {
    const PlanInput& request = batch.request;
    text += fmt::format("  {:<26} {:<3} {:<{}} {:>9} per step  {:>10} per rank{}\n", name,
                        request.micro_batch,
                        describe_recomputation(way_of(request), request.architecture.num_layers),
                        width, step_text(batch.time.step_s), core::human_bytes(batch.memory_bytes),
                        request.micro_batch == choice.request.micro_batch ? "  (taken)"
                        : !batch.fits                                     ? "  (does not fit)"
                        : batch.is_comfortable                            ? ""
                                                                          : "  (fills the memory)");
    name = "";
  }
  return text;
}

std::string activations_text(const Choice& choice, const Site& site) {
  if (!choice.ways.empty() && choice.ways.front().is_of(choice.request))
    return fmt::format("  {:<26} none: nothing is recomputed, {} of {} are enough\n",
                       "activation_checkpointing",
                       core::human_bytes(choice.ways.front().memory_bytes),
                       core::human_bytes(site.available_bytes));
  std::string text;
  const std::size_t width = width_of(31, choice.ways, choice.request.architecture.num_layers);
  const char* name = "activation_checkpointing";
  for (const WayToKeep& way : choice.ways) {
    const bool is_taken = way.is_of(choice.request);
    text += fmt::format("  {:<26} {:<{}} {:>9} per step  {:>10} per rank{}\n", name,
                        describe_recomputation(way, choice.request.architecture.num_layers), width,
                        step_text(way.step_s), core::human_bytes(way.memory_bytes),
                        is_taken                                   ? "  (taken)"
                        : way.fits                                 ? ""
                        : way.memory_bytes <= site.available_bytes ? "  (fills the memory)"
                                                                   : "  (does not fit)");
    name = "";
  }
  return text;
}

}  // namespace

Machine usual_machine(bool on_gpu, std::int64_t cores_per_rank) {
  Machine machine;
  machine.name = on_gpu ? "usual GPU nodes" : "usual CPU nodes";
  machine.product_half_size = on_gpu ? 250 : 150;
  return with_usual_rates(machine, on_gpu, cores_per_rank);
}

Machine with_usual_rates(Machine machine, bool on_gpu, std::int64_t cores_per_rank) {
  const auto cores = static_cast<double>(std::max<std::int64_t>(1, cores_per_rank));
  if (on_gpu) machine.gpus_per_node = std::max<std::int64_t>(1, machine.gpus_per_node);
  set_if_missing(machine.bf16_tflops, on_gpu ? 235 : 0.06 * cores);
  set_if_missing(machine.fp32_tflops, on_gpu ? 17 : 0.06 * cores);
  set_if_missing(machine.memory_gb_per_s, on_gpu ? 1450 : std::min(5 * cores, 45.0));
  set_if_missing(machine.operation_us, on_gpu ? 8 : 15);
  set_if_missing(machine.host_gb_per_s, 12);
  if (on_gpu) set_if_missing(machine.host_link_gb_per_s, 12);
  set_if_missing(machine.intra_gb_per_s, on_gpu ? 220 : 4);
  set_if_missing(machine.intra_latency_us, on_gpu ? 3 : 20);
  set_if_missing(machine.inter_gb_per_s, on_gpu ? 180 : 2.5);
  set_if_missing(machine.inter_latency_us, on_gpu ? 8 : 30);
  return machine;
}

bool is_sharding_open(const PlanInput& request) {
  const ParallelSettings& parallel = request.parallel;
  return !parallel.sharding && parallel.dp_shard == 0 && parallel.dp_replicate == 0;
}

OpenAxes sharing_axes(const PlanInput& request, const model::ParameterTable& table) {
  OpenAxes open;
  if (request.ranks.world_size == 1) return open;
  open = open_axes(request.parallel);
  if (request.optimizer.needs_matrices || request.optimizer.has_factors())
    open.tp = open.ep = false;
  open.ep = open.ep && std::ranges::any_of(table.rows, [](const model::Parameter& row) {
              return row.of_experts.has_value();
            });
  return open;
}

/// Where nobody gathers there is nothing to gather early.
bool is_prefetch_open(const PlanInput& request) {
  return request.parallel.prefetch == 0 && request.parallel.overlap && request.ranks.world_size > 1;
}

bool is_open(const PlanInput& request, const model::ParameterTable& table) {
  return is_sharding_open(request) || request.chooses_activations || request.chooses_micro_batch ||
         is_prefetch_open(request) || sharing_axes(request, table).any();
}

Choice choose(const PlanInput& asked, const model::ParameterTable& table, const Site& site) {
  Choice choice;
  choice.request = asked;
  if (site.available_bytes <= 0) return choice;
  choice.strategies = is_sharding_open(asked)
                          ? compare(asked, table, site)
                          : std::vector<Strategy>{plan_strategy(asked, table, site)};
  put_best_first(choice.strategies);
  if (!choice.strategies.front().fits) share_more(choice, asked, table, site);
  if (!choice.strategies.front().fits && asked.chooses_activations && asked.on_gpu &&
      !site.offloads_inputs) {
    Site last_resort = site;
    last_resort.offloads_inputs = true;
    return choose(asked, table, last_resort);
  }
  if (asked.chooses_micro_batch)
    choice.batches = with_micro_batches(choice.strategies.front().request, table, site);
  choice.request = choice.strategies.front().request;
  choice.request.chooses_micro_batch = false;
  if (is_prefetch_open(asked)) prefetch_deeper(choice, table, site);
  if (asked.chooses_activations) choice.ways = ways_to_keep(choice.request, table, site);
  return choice;
}

std::string to_string(const Choice& choice, const PlanInput& asked, const Site& site) {
  std::string text;
  if (choice.strategies.empty()) return text;
  if (choice.without_sharing)
    text += sharing_text(choice, site);
  else if (is_sharding_open(asked))
    text += sharding_text(choice);
  if (asked.chooses_micro_batch) text += batches_text(choice);
  if (asked.chooses_activations) text += activations_text(choice, site);
  if (choice.prefetch_saves_s > 0)
    text += fmt::format("  {:<26} {}: blocks are gathered so many ahead, which saves {} per step\n",
                        "parallel.prefetch", choice.request.parallel.prefetch,
                        step_text(choice.prefetch_saves_s));
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace finetune::plan
