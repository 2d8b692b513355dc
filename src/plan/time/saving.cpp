// SPDX-License-Identifier: Apache-2.0
#include "plan/time/saving.hpp"

#include <algorithm>
#include <cmath>

namespace finetune::plan {
namespace {

/// Rarer than this many best intervals is worth a word, if it costs this much of the time.
constexpr double rarely = 3, costly = 0.01;

/// All nodes move `bytes`, each at its rate, together no faster than all of them may.
double transfer_s(double bytes, double of_node, double of_all, std::int64_t num_nodes) {
  if (of_node <= 0) return 0;
  const double together = of_node * static_cast<double>(num_nodes);
  return bytes / (1e9 * (of_all > 0 ? std::min(together, of_all) : together));
}

/// A copy of what one rank saves, in host memory: read and written.
double copy_s(double bytes, const PlanInput& request, const Machine& machine) {
  const double rate = request.on_gpu ? machine.host_gb_per_s : machine.memory_gb_per_s;
  return rate > 0 ? 2 * bytes / (1e9 * rate) : 0;
}

}  // namespace

std::int64_t checkpoint_bytes(const PlanInput& request, const Plan& plan) {
  return core::size_bytes(request.numbers.master) * plan.num_trainable +
         request.optimizer.state_bytes(plan.num_trainable, request.numbers) + plan.factor_bytes;
}

double best_interval_s(double blocked_s, double mtbf_s) {
  return std::sqrt(2 * blocked_s * mtbf_s);
}

double expected_loss(double interval_s, double blocked_s, double restart_s, double mtbf_s) {
  return std::min(1.0, blocked_s / interval_s + (interval_s / 2 + restart_s) / mtbf_s);
}

SavingPlan plan_saving(const Plan& plan, const PlanInput& request, const Machine& machine,
                       const SavingRules& rules) {
  SavingPlan saving;
  saving.bytes = checkpoint_bytes(request, plan);
  const auto bytes = static_cast<double>(saving.bytes);
  const std::int64_t nodes = plan.ranks.num_nodes;
  saving.read_s = transfer_s(bytes, machine.read_gb_per_s, machine.all_read_gb_per_s, nodes);
  saving.write_s = transfer_s(bytes, machine.write_gb_per_s, machine.all_write_gb_per_s, nodes);
  if (rules.reads_back && saving.write_s > 0) saving.write_s += saving.read_s;
  const double copied_s =
      copy_s(bytes / static_cast<double>(plan.ranks.world_size), request, machine);
  saving.blocked_s = rules.beside_training && copied_s > 0 ? copied_s : saving.write_s;
  saving.mtbf_s = 3600 * machine.node_mtbf_hours / static_cast<double>(nodes);
  if (saving.blocked_s <= 0 || saving.mtbf_s <= 0) return saving;

  // A save that is not written yet is nothing to go on from, and the next one waits for it.
  saving.best_interval_s =
      std::max({best_interval_s(saving.blocked_s, saving.mtbf_s), saving.write_s, rules.step_s});
  saving.best_loss =
      expected_loss(saving.best_interval_s, saving.blocked_s, saving.read_s, saving.mtbf_s);
  if (rules.interval_s <= 0) return saving;
  saving.loss = expected_loss(rules.interval_s, saving.blocked_s, saving.read_s, saving.mtbf_s);
  saving.is_too_rare =
      rules.interval_s > rarely * saving.best_interval_s && saving.loss - saving.best_loss > costly;
  return saving;
}

}  // namespace finetune::plan
