#pragma once
// SPDX-License-Identifier: Apache-2.0
// The plan of a deck on a machine: time, checkpoints, scaling, and the job.

#include <cstdint>
#include <string>
#include <vector>

#include "commands.hpp"
#include "plan/time/saving.hpp"
#include "plan/time/scaling.hpp"
#include "plan/time/strategies.hpp"
#include "plan/time/time.hpp"
#include "plan_time.hpp"
#include "train/input/input.hpp"

namespace finetune::app {

/// What it is made of outlives it.
class MachinePlan {
 public:
  MachinePlan(const Arguments& arguments, const train::Input& input, const plan::PlanInput& request,
              const plan::Plan& plan, const plan::Site& site);

  /// The number of nodes against what they do, and the picture of it, before anything is printed:
  /// a place that cannot be written to is worth no table. Throws: ErrorKind::create.
  void scale();

  void print() const;

  /// The jobscript; what it may not do is warned of.
  std::string script() const;

 private:
  RunLength length() const;
  /// By the deck's steps or epochs; 0: neither, or nobody says how long an epoch is.
  double steps_between_saves() const;
  double num_tokens() const;
  void warn_of_cores() const;
  void warn_of_saves() const;
  void print_scaling() const;
  std::int64_t walltime_s() const;

  const Arguments& arguments_;
  const train::Input& input_;
  const plan::PlanInput& request_;
  const plan::Plan& plan_;
  const plan::Site& site_;
  plan::TimePlan time_;
  plan::SavingRules rules_;
  plan::SavingPlan saving_;
  std::vector<plan::ScalingRow> weak_;
  std::vector<plan::ScalingRow> strong_;
};

}  // namespace finetune::app
