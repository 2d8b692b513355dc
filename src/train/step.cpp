// SPDX-License-Identifier: Apache-2.0
#include "train/step.hpp"

#include <fmt/format.h>

#include <cmath>

#include "comm/agree.hpp"
#include "optim/clip.hpp"

namespace finetune::train {
namespace {

/// Without the sign that a NaN may have.
std::string readable(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

/// Both numbers are the same on every rank, so all throw together.
void require_finite(const StepResult& result, std::int64_t step) {
  if (std::isfinite(result.loss) && std::isfinite(result.grad_norm)) return;
  throw comm::AgreedError(
      core::ErrorKind::numbers,
      core::to_string({fmt::format("step {}", step + 1),
                       fmt::format("loss is {} and the gradient's norm {}", readable(result.loss),
                                   readable(result.grad_norm)),
                       "training cannot go on from numbers that are not "
                       "finite; the weights are still those of the step before",
                       "Lower optimizer.lr or raise optimizer.warmup_steps in a new run (another "
                       "train.output), and look at the data of this step."}));
}

}  // namespace

StepResult run_step(const Engine& engine, const comm::Communicator& batch,
                    const data::StepData& data, optim::AdamW& optimizer,
                    const StepSettings& settings) {
  const double scale = 1.0 / static_cast<double>(data.num_trained_tokens);
  engine.shards.reset_gradients();
  double loss_sum = 0;
  for (const auto& micro_batch : data.micro_steps) {
    loss_sum += forward_backward(engine, micro_batch, scale).loss;
  }
  StepResult result;
  result.loss = batch.all_reduce(loss_sum, comm::Reduce::sum) * scale;
  result.grad_norm = optim::gradient_norm(engine.shards);
  require_finite(result, settings.step);
  optimizer.step(engine.shards, settings.step, settings.lr,
                 optim::clip_factor(result.grad_norm, settings.max_grad_norm));
  return result;
}

}  // namespace finetune::train
