#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a run has trained on so far, and how fast: the row of a step, besides where its time went.

#include <cstdint>
#include <optional>
#include <string>

#include "data/steps/stream.hpp"
#include "metrics/records.hpp"
#include "plan/plan.hpp"
#include "train/input/input.hpp"
#include "train/step/step.hpp"
#include "world/world.hpp"

namespace finetune::train {

/// Sums over all starts of a run.
struct Totals {
  std::optional<std::int64_t> samples = {};  ///< none: a checkpoint did not say
  std::optional<std::int64_t> tokens = {};
};

/// How fast a rank is, measured by what it computes, and of how many layers.
struct Yardstick {
  int num_ranks = 1;
  double flops_per_token = 0;  ///< of the model, over all ranks that share it
  double peak_flops = 0;       ///< of a rank's device; 0: not known
  int num_stages = 2;          ///< embedding, blocks, head
};

/// That of this run. Reads the file of parallel.machine.
Yardstick yardstick_of(const Input& input, const plan::Plan& plan, const world::World& world);

/// Only the root's rows are used, but every rank has one: checkpoints hold the sums.
class Tally {
 public:
  Tally(const Yardstick& yardstick, const Totals& before)
      : yardstick_(yardstick), totals_(before) {}

  /// Adds step number `step`, counted from 1, that took `step_s`.
  metrics::StepRecord add(std::int64_t step, const data::StepData& data, const StepResult& result,
                          double step_s);

  /// For people: "per rank: 345 tokens/s, ..."; of the steps of this start, of which there is one.
  std::string summary() const;

  const Totals& totals() const { return totals_; }
  /// Of this start.
  std::int64_t tokens() const { return tokens_; }

 private:
  Yardstick yardstick_;
  Totals totals_;
  std::int64_t tokens_ = 0;  ///< of this start
  double step_s_ = 0;        ///< the same
};

}  // namespace finetune::train
