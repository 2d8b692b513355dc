#pragma once
// SPDX-License-Identifier: Apache-2.0
// Checkpoints: how large, how long they take, and how often to save.

#include <cstdint>

#include "plan/machine/machine.hpp"
#include "plan/plan.hpp"

namespace finetune::plan {

/// How the deck saves.
struct SavingRules {
  bool beside_training = true;  ///< training waits for a copy in host memory only
  bool reads_back = true;
  double interval_s = 0;  ///< 0: during the run never
  double step_s = 0;      ///< of training: no interval is shorter
};

struct SavingPlan {
  std::int64_t bytes = 0;      ///< of a checkpoint, over all nodes
  double write_s = 0;          ///< and read back; 0: not known
  double read_s = 0;           ///< by a restart; 0: not known
  double blocked_s = 0;        ///< training waits
  double mtbf_s = 0;           ///< of all nodes together; 0: not known
  double best_interval_s = 0;  ///< 0: not known
  double best_loss = 0;        ///< share of the time, at that interval
  double loss = 0;             ///< share of the time, as the deck saves
  bool is_too_rare = false;    ///< the deck saves much more rarely, and that costs time
};

/// A checkpoint has master weights and optimizer states of what is trained
/// (src/checkpoint/README.md).
std::int64_t checkpoint_bytes(const PlanInput& request, const Plan& plan);

/// sqrt(2 blocked mtbf): where waiting for saves costs as much as computing again what was lost.
/// Sources: Young 1974 (doi 10.1145/361147.361115), Daly 2006 (doi 10.1016/j.future.2004.11.016).
double best_interval_s(double blocked_s, double mtbf_s);

/// Share of the time that saves and failures take: blocked / interval, and half an interval and a
/// restart a failure.
double expected_loss(double interval_s, double blocked_s, double restart_s, double mtbf_s);

SavingPlan plan_saving(const Plan& plan, const PlanInput& request, const Machine& machine,
                       const SavingRules& rules);

}  // namespace finetune::plan
