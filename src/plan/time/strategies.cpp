// SPDX-License-Identifier: Apache-2.0
#include "plan/time/strategies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/text.hpp"
#include "plan/detail/sharing.hpp"
#include "plan/time/activations.hpp"

namespace finetune::plan {
namespace {

/// Two plans this near to each other are one: the model is not that exact.
constexpr double same_time = 0.01;
/// Of the memory that is there.
constexpr double comfortable = 0.9;

bool is_same(const Mesh& a, const Mesh& b) {
  return a.sharding == b.sharding && a.axes == b.axes && a.ep == b.ep;
}

/// HYBRID_SHARD in one group is FULL_SHARD by another name; so is everything where each rank has
/// all that tensor parallelism leaves.
bool says_nothing_new(const Mesh& mesh) {
  if (mesh.size(groups::fsdp) * mesh.size(groups::dp_replicate) == 1)
    return mesh.sharding != Sharding::full_shard;
  return mesh.sharding == Sharding::hybrid_shard &&
         (mesh.size(groups::dp_replicate) == 1 || mesh.size(groups::fsdp) == 1);
}

std::string gigabytes(double bytes) {
  return bytes >= 1e9 ? fmt::format("{:.1f} GB", bytes / 1e9)
                      : fmt::format("{:.1f} MB", bytes / 1e6);
}

std::string seconds(double s) {
  return s >= 1 ? fmt::format("{:.2f} s", s) : fmt::format("{:.1f} ms", 1e3 * s);
}

/// "6.13 ms instead of 6.08 ms": with so many digits that they differ.
std::string instead(double s, double other_s) {
  const bool in_ms = std::max(s, other_s) < 1;
  const double scale = in_ms ? 1e3 : 1;
  const auto text = [&](double value, int digits) {
    return fmt::format("{:.{}f} {}", scale * value, digits, in_ms ? "ms" : "s");
  };
  int digits = in_ms ? 1 : 2;
  while (digits < 6 && text(s, digits) == text(other_s, digits))
    ++digits;
  return text(s, digits) + " instead of " + text(other_s, digits);
}

double computing_s(const TimePlan& time) {
  return time.step_s - time.exposed_s - time.held_up_s - time.optimizer_s;
}

bool recomputes_more(const Strategy& a, const Strategy& b) {
  const PlanInput &x = a.request, &y = b.request;
  return x.activation_checkpointing != y.activation_checkpointing
             ? x.activation_checkpointing > y.activation_checkpointing
             : x.recomputed_blocks > y.recomputed_blocks;
}

std::string compare_times(const Strategy& best, const Strategy& next) {
  const double more_s = next.time.step_s - best.time.step_s;
  if (more_s < same_time * best.time.step_s)
    return fmt::format(
        "{} and {} take the same time within {:.0f} %: the one that needs less memory is taken",
        best.name(), next.name(), 100 * same_time);
  std::string text = fmt::format("{} is fastest: {} takes {} per step more", best.name(),
                                 next.name(), seconds(more_s));
  const double waits_s = next.time.exposed_s - best.time.exposed_s;
  const double updates_s = next.time.optimizer_s - best.time.optimizer_s;
  const double held_up_s = next.time.held_up_s - best.time.held_up_s;
  const double computes_s = more_s - waits_s - held_up_s - updates_s;
  if (held_up_s > std::max({waits_s, updates_s, computes_s}))
    return text + ", because it waits " + instead(next.time.held_up_s, best.time.held_up_s) +
           " for activations on their way to or from the host";
  if (computes_s > std::max(waits_s, updates_s))
    return text + ", because its ranks compute for " +
           instead(computing_s(next.time), computing_s(best.time)) +
           (recomputes_more(next, best) ? ": to need less memory, they recompute more" : "");
  if (updates_s > waits_s)
    return text + ", because each rank updates more weights: " +
           instead(next.time.optimizer_s, best.time.optimizer_s);
  text += ", because it waits " + instead(next.time.exposed_s, best.time.exposed_s) +
          " for communication";
  if (next.time.sent_by_node_bytes > 1.05 * best.time.sent_by_node_bytes)
    text += fmt::format(" (a node sends {} instead of {} to others)",
                        gigabytes(next.time.sent_by_node_bytes),
                        gigabytes(best.time.sent_by_node_bytes));
  return text;
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

bool fits_host(const Plan& plan, const Site& site) {
  return site.available_host_bytes <= 0 || plan.host_bytes() <= site.available_host_bytes;
}

Strategy plan_micro_batch(const PlanInput& request, const model::ParameterTable& table,
                          const Site& site) {
  Strategy strategy;
  strategy.request = with_activations(request, table, site);
  const Plan plan = make(strategy.request, table);
  strategy.mesh = plan.mesh;
  strategy.memory_bytes = plan.memory_bytes();
  strategy.host_bytes = plan.host_bytes();
  strategy.fits_device = site.available_bytes <= 0 || strategy.memory_bytes <= site.available_bytes;
  strategy.fits = strategy.fits_device && fits_host(plan, site);
  strategy.is_comfortable = strategy.fits && leaves_room(plan, site);
  strategy.time = plan_time(plan, strategy.request, table, site.machine, site.passes);
  return strategy;
}

/// One, two, four and so on, and `most`.
std::vector<std::int64_t> micro_batches(std::int64_t most) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size < most; size *= 2)
    sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

/// Of those that take as long as the first, the one that needs least memory comes first.
void prefer_less_memory(std::vector<Strategy>& strategies) {
  const Strategy first = strategies.front();
  const auto is_as_fast = [&](const Strategy& s) {
    return s.fits == first.fits && s.time.step_s <= (1 + same_time) * first.time.step_s;
  };
  const auto end = std::find_if_not(strategies.begin(), strategies.end(), is_as_fast);
  const auto least = std::min_element(
      strategies.begin(), end,
      [](const Strategy& a, const Strategy& b) { return a.memory_bytes < b.memory_bytes; });
  std::rotate(strategies.begin(), least, least + 1);
}

/// Copies of the model over few nodes each: the fewest whose memory holds one, where one node does
/// not. More nodes would send more.
void add_hybrid_over_nodes(const PlanInput& request, const model::ParameterTable& table,
                           const Site& site, std::vector<Strategy>& strategies) {
  const Ranks& ranks = request.ranks;
  if (site.available_bytes <= 0 || !ranks.is_even) return;
  const std::int64_t sharing = request.parallel.num_tp() * request.parallel.num_cp();
  for (std::int64_t nodes = 1; nodes < ranks.num_nodes; nodes *= 2) {
    PlanInput other = request;
    other.parallel.sharding = Sharding::hybrid_shard;
    if (nodes * ranks.ranks_per_node % sharing != 0) continue;
    other.parallel.dp_shard = nodes * ranks.ranks_per_node / sharing;
    other.parallel.dp_replicate = 0;
    if (!has_mesh(other, table)) return;
    Strategy hybrid = plan_strategy(other, table, site);
    if (!hybrid.fits) continue;
    const bool is_there = std::any_of(strategies.begin(), strategies.end(),
                                      [&](const auto& s) { return is_same(s.mesh, hybrid.mesh); });
    if (!is_there) strategies.push_back(std::move(hybrid));
    return;
  }
}

}  // namespace

std::string Strategy::name() const {
  const std::int64_t tp = mesh.axes[Axis::tp], cp = mesh.axes[Axis::cp];
  const bool is_usual = mesh.sharding != Sharding::hybrid_shard ||
                        mesh.axes[Axis::dp_shard] ==
                            std::max<std::int64_t>(1, request.ranks.ranks_per_node / (tp * cp));
  std::string text = to_string(mesh.sharding);
  if (!is_usual) text += fmt::format(" {}", mesh.axes[Axis::dp_shard]);
  if (tp > 1) text += fmt::format(" tp {}", tp);
  if (cp > 1) text += fmt::format(" cp {}", cp);
  if (mesh.ep > 1) text += fmt::format(" ep {}", mesh.ep);
  return text;
}

bool leaves_room(const Plan& plan, const Site& site) {
  if (site.available_bytes <= 0) return true;
  const std::int64_t bytes = plan.memory_bytes();
  return static_cast<double>(bytes) <= comfortable * static_cast<double>(site.available_bytes) &&
         bytes + plan.uneven_router_bytes / 2 <= site.available_bytes;
}

std::vector<Strategy> with_micro_batches(const PlanInput& request,
                                         const model::ParameterTable& table, const Site& site) {
  std::vector<Strategy> batches;
  const std::int64_t data_ranks = mesh_of(request, table).size(groups::batch);
  for (const std::int64_t size : micro_batches(divide_up(request.global_batch, data_ranks))) {
    PlanInput sized = request;
    sized.micro_batch = size;
    batches.push_back(plan_micro_batch(sized, table, site));
    if (!batches.back().fits) break;
  }
  return batches;
}

Strategy plan_strategy(const PlanInput& request, const model::ParameterTable& table,
                       const Site& site) {
  if (!request.chooses_micro_batch) return plan_micro_batch(request, table, site);
  std::vector<Strategy> batches = with_micro_batches(request, table, site);
  auto best = batches.begin();
  for (auto batch = batches.begin(); batch != batches.end(); ++batch)
    if (batch->is_comfortable && batch->time.step_s < (1 - same_time) * best->time.step_s)
      best = batch;
  return std::move(*best);
}

std::vector<Strategy> compare(const PlanInput& request, const model::ParameterTable& table,
                              const Site& site) {
  const bool is_open = !request.parallel.sharding && request.parallel.dp_shard == 0 &&
                       request.parallel.dp_replicate == 0;
  std::vector<Strategy> strategies;
  if (!is_open) strategies.push_back(plan_strategy(request, table, site));
  for (const Sharding sharding : {Sharding::full_shard, Sharding::hybrid_shard,
                                  Sharding::shard_grad_op, Sharding::no_shard}) {
    PlanInput other = request;
    other.parallel.sharding = sharding;
    other.parallel.dp_shard = other.parallel.dp_replicate = 0;
    // FULL_SHARD is there if the ranks form any mesh, and else says what is wrong. Nodes may have
    // no room for whole copies, and ranks that hold one alone nobody to share experts with.
    if (sharding != Sharding::full_shard && !has_mesh(other, table)) continue;
    const Mesh mesh = make_mesh(other.parallel, other.ranks, other.deck);
    const bool is_there = std::any_of(strategies.begin(), strategies.end(),
                                      [&](const auto& s) { return is_same(s.mesh, mesh); });
    if (is_there || says_nothing_new(mesh)) continue;
    strategies.push_back(plan_strategy(other, table, site));
  }
  add_hybrid_over_nodes(request, table, site, strategies);
  std::stable_sort(strategies.begin(), strategies.end(), [](const Strategy& a, const Strategy& b) {
    return a.fits != b.fits ? a.fits : a.time.step_s < b.time.step_s;
  });
  prefer_less_memory(strategies);
  return strategies;
}

std::string reason(const std::vector<Strategy>& strategies) {
  if (strategies.size() < 2) return "";
  const Strategy& best = strategies[0];
  const Strategy& next = strategies[1];
  if (!best.fits) return "none of them fits";
  if (!next.fits)
    return fmt::format("{} is the only one that fits: {} needs {} per rank{}", best.name(),
                       next.name(),
                       core::human_bytes(next.fits_device ? next.host_bytes : next.memory_bytes),
                       next.fits_device ? " of the host's memory" : "");
  return compare_times(best, next);
}

}  // namespace finetune::plan
