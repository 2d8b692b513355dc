#pragma once
// SPDX-License-Identifier: Apache-2.0
// The learning rate of a step: a function of its number alone, so that a restart needs no state.

#include <cstdint>

#include "optim/settings.hpp"

namespace finetune::optim {

class Schedule {
 public:
  /// `num_steps` of the whole run.
  Schedule(const OptimizerSettings& settings, std::int64_t num_steps);

  /// Learning rate of step 0, 1, ... num_steps - 1. Warm-up rises over steps 0 .. w - 1 as
  /// (step + 1) / w; the decay begins at step w (wsd: decay_ratio before the end) and would reach
  /// its end at step num_steps. From the peak on all are those of transformers' optimization.py.
  /// Source of wsd: Hu et al. 2024, MiniCPM (arXiv 2404.06395).
  double lr(std::int64_t step) const;

  std::int64_t warmup_steps() const { return warmup_steps_; }

 private:
  OptimizerSettings settings_;
  std::int64_t num_steps_;
  std::int64_t warmup_steps_;
  std::int64_t decay_begin_;  ///< the first step that may be below the peak
  double scale_ = 1;          ///< steps after which inverse_sqrt is at 1 / sqrt(2)
};

}  // namespace finetune::optim
