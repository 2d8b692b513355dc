// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/tally.hpp"

#include <fmt/format.h>

#include "core/clock.hpp"
#include "plan/time/time.hpp"
#include "train/input/choices.hpp"

namespace finetune::train {

Yardstick yardstick_of(const Input& input, const plan::Plan& plan, const world::World& world) {
  const bool on_gpu = world.device.index >= 0;
  plan::PlanInput request = input.plan_input(plan.ranks);
  request.on_gpu = on_gpu;
  return {.num_ranks = world.world.size(),
          .flops_per_token = plan::model_flops_per_token(plan, request, input.parameters),
          .peak_flops = peak_flops(input, on_gpu),
          .num_stages = static_cast<int>(input.architecture.num_layers) + 2};
}

namespace {

std::string layer_name(int stage, int num_stages) {
  if (stage == 0) return "embedding";
  return stage + 1 == num_stages ? "head" : fmt::format("block {}", stage - 1);
}

}  // namespace

metrics::StepRecord Tally::add(std::int64_t step, const data::StepData& data,
                               const StepResult& result, double step_s) {
  if (totals_.samples) *totals_.samples += data.num_samples;
  if (totals_.tokens) *totals_.tokens += data.num_tokens;
  tokens_ += data.num_tokens;
  step_s_ += step_s;
  const double tokens_per_s = static_cast<double>(data.num_tokens) / step_s;
  const double per_rank = tokens_per_s / yardstick_.num_ranks;
  const double flops = per_rank * yardstick_.flops_per_token;
  metrics::StepRecord record{.step = step,
                             .loss = result.loss,
                             .grad_norm = result.grad_norm,
                             .tokens = data.num_tokens,
                             .tokens_per_s = tokens_per_s,
                             .step_s = step_s,
                             .padding = data.padding(),
                             .balance_loss = result.balance_loss,
                             .total_samples = totals_.samples,
                             .total_tokens = totals_.tokens,
                             .tokens_per_s_per_rank = per_rank,
                             .tflops_per_rank = 1e-12 * flops,
                             .unix_time_s = core::unix_time_s()};
  for (const optim::LayerNorm& norm : result.layer_norms)
    record.norms.push_back({.stage = norm.stage,
                            .layer = layer_name(norm.stage, yardstick_.num_stages),
                            .weight = norm.weight,
                            .gradient = norm.gradient});
  if (yardstick_.peak_flops > 0) record.mfu = flops / yardstick_.peak_flops;
  return record;
}

std::string Tally::summary() const {
  const double per_rank = static_cast<double>(tokens_) / step_s_ / yardstick_.num_ranks;
  const double flops = per_rank * yardstick_.flops_per_token;
  const std::string mfu =
      yardstick_.peak_flops > 0
          ? fmt::format("{:.1f} % MFU", 100 * flops / yardstick_.peak_flops)
          : std::string("MFU not known: parallel.machine names no machine that says its peak");
  return fmt::format("per rank: {:.0f} tokens/s, {:.3g} TFLOP/s of the model ({})", per_rank,
                     1e-12 * flops, mfu);
}

}  // namespace finetune::train
