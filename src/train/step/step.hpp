#pragma once
// SPDX-License-Identifier: Apache-2.0
// One optimizer step: micro-batches in, new weights out.

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "data/steps/stream.hpp"
#include "optim/layer_norms.hpp"
#include "optim/loss_scale.hpp"
#include "optim/optimizer.hpp"
#include "train/run/stop_vote.hpp"
#include "train/step/noise.hpp"
#include "train/step/passes.hpp"

namespace finetune::train {

struct StepResult {
  double loss = 0;       ///< the objective's mean over all ranks and micro-batches
  double grad_norm = 0;  ///< of the global gradient, before clipping
  /// With experts that are balanced: E * (sum over experts of share in choices * mean probability),
  /// the mean over tokens and layers. Top-k when the load is even. Not part of `loss`.
  std::optional<double> balance_loss = {};
  std::vector<optim::LayerNorm> layer_norms = {};  ///< if asked for; gradients before clipping
  std::optional<NoiseEstimate> noise = {};         ///< if asked for, and if the step says it
  bool is_skipped = false;  ///< 16-mixed: gradients overflowed, the weights are as before
  /// The step was left after so many passes, on every rank, and the weights are as before; nothing
  /// else of this result holds. 0: it is whole.
  std::int64_t left_after = 0;
  double exposed_s = 0;  ///< this rank computed nothing because it waited for others
  std::vector<std::pair<std::string, double>> exposed_by_axis = {};  ///< of it, each group's
  double optimizer_s = 0;  ///< on a GPU, of the step before
};

struct StepSettings {
  std::int64_t step = 0;  ///< counts from 0
  double lr = 0;
  double max_grad_norm = 0;
  optim::LossScale* loss_scale = nullptr;  ///< of 16-mixed
  bool wants_layer_norms = false;
  bool wants_noise = false;  ///< without tp, cp and ep; Numbers::keeps_passes_apart
  /// Each unit is updated as soon as its gradient is complete; of a step that is one pass, without
  /// clipping, loss scale, layer norms and noise.
  bool updates_in_backward = false;
  StopVote* vote = nullptr;  ///< whether to leave the step between passes
  bool more_follow = false;  ///< steps: what the next begins with is gathered
};

/// Loss and gradient are sums over all trained tokens divided by their exact count, so any split of
/// the global batch into ranks and micro-batches gives the same gradient.
/// Collective on `loss_ranks`, which have different tokens, on the shards' groups and, with a vote,
/// on its world. Throws: ErrorKind::numbers on every rank if loss or gradient is not finite or
/// beyond what fixed point holds, before weights change unless they are updated in backward.
StepResult run_step(const Engine& engine, const comm::Communicator& loss_ranks,
                    const data::StepData& data, optim::Optimizer& optimizer,
                    const StepSettings& settings);

}  // namespace finetune::train
