// SPDX-License-Identifier: Apache-2.0
#include "optimizers/adamw/adamw.hpp"

#include <algorithm>
#include <memory>

#include "kernels/adamw.hpp"
#include "kernels/composed.hpp"
#include "kernels/gpu_kernels.hpp"
#include "optim/elements.hpp"
#include "optimizers/adamw/kind.hpp"
#include "shard/options.hpp"

namespace finetune::optimizers::adamw {
namespace {

using optim::composed_elements, optim::dispatch, optim::elements, optim::set_copies;

constexpr optim::OptimizerKey beta1 = {.name = "beta1",
                                       .default_value = 0.9,
                                       .range = {.min = 0, .below = 1},
                                       .sentence = "Decay of the running mean of gradients"};
constexpr optim::OptimizerKey beta2 = {
    .name = "beta2",
    .default_value = 0.95,
    .range = {.min = 0, .below = 1},
    .sentence = "Decay of the running mean of squared gradients"};
constexpr optim::OptimizerKey epsilon = {
    .name = "eps",
    .default_value = 1e-8,
    .range = {.above = 0},
    .sentence = "Added to the square root of the second moment"};

plan::OptimizerFootprint footprint() {
  return {.name = "adamw",
          .label = "AdamW moments",
          .format = "",
          .states = {{.kind = "exp_avg"}, {.kind = "exp_avg_sq", .is_signed = false}},
          .passes = {.composed_bytes = 48, .is_one_operation_in_fp32 = true}};
}

std::unique_ptr<optim::Optimizer> make(const optim::OptimizerSettings& settings,
                                       const model::ParameterTable& table,
                                       const shard::ModelShards& shards,
                                       const optim::OptimizerSetup& setup) {
  return std::make_unique<AdamW>(settings, table, shards, shard::to_aten(setup.moments), setup.path,
                                 setup.seed);
}

}  // namespace

std::vector<optim::OptimizerKey> keys() {
  return {beta1, beta2, epsilon};
}

Hyperparameters::Hyperparameters(const optim::OptimizerSettings& settings)
    : beta1(settings.number(adamw::beta1)),
      beta2(settings.number(adamw::beta2)),
      epsilon(settings.number(adamw::epsilon)) {}

AdamW::AdamW(const optim::OptimizerSettings& settings, const model::ParameterTable& table,
             const shard::ModelShards& shards, at::ScalarType moments_dtype, model::Path path,
             std::uint64_t seed)
    : Optimizer(footprint(), settings, table, shards, moments_dtype, path, seed), by_(settings) {}

template <typename Weight, typename Moment>
void AdamW::update(shard::ModelShards& shards, int unit, const Run& run, const Step& step) {
  kernels::AdamWStep<Weight, Moment> args{
      .weight = elements<Weight>(shards.master(unit), run.offset, run.count),
      .exp_avg = elements<Moment>(exp_avg(unit), run.offset, run.count),
      .exp_avg_sq = elements<Moment>(exp_avg_sq(unit), run.offset, run.count),
      .gradient = elements<const float>(step.gradient, run.offset, run.count),
      .weight_bf16 = {},
      .weight_f16 = {},
      .lr = step.lr * run.lr_ratio,
      .beta1 = by_.beta1,
      .beta2 = by_.beta2,
      .epsilon = by_.epsilon,
      .weight_decay = run.weight_decay,
      .step = step.number + 1,
      .gradient_scale = static_cast<float>(step.gradient_scale),
      .rounding = rounding(step),
      .index = run.index};
  set_copies(step.copy, run.offset, run.count, args);
  kernels::adamw(args, kernels::place_on(shards.master(unit).device()));
}

void AdamW::update_by_kernels(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                              const Step& step) {
  dispatch(shards.master(unit).scalar_type(), [&]<typename Weight>() {
    dispatch(exp_avg(unit).scalar_type(), [&]<typename Moment>() {
      for (const Run& run : runs)
        update<Weight, Moment>(shards, unit, run, step);
    });
  });
}

void AdamW::update_by_compositions(shard::ModelShards& shards, int unit,
                                   const std::vector<Run>& runs, const Step& step) {
  const bool is_narrow = shards.master(unit).scalar_type() == at::kBFloat16 ||
                         exp_avg(unit).scalar_type() == at::kBFloat16;
  const auto by = is_narrow ? rounding(step) : std::nullopt;
  for (const Run& run : runs) {
    const std::int64_t most = by ? composed_elements : run.count;
    for (std::int64_t done = 0; done < run.count; done += most) {
      const std::int64_t count = std::min(most, run.count - done);
      const auto part = [&](const at::Tensor& tensor) {
        return tensor.narrow(0, run.offset + done, count);
      };
      at::Tensor weight = part(shards.master(unit));
      at::Tensor m = part(exp_avg(unit));
      at::Tensor v = part(exp_avg_sq(unit));
      kernels::composed::adamw_(weight, m, v, part(step.gradient),
                                {.lr = step.lr * run.lr_ratio,
                                 .beta1 = by_.beta1,
                                 .beta2 = by_.beta2,
                                 .epsilon = by_.epsilon,
                                 .weight_decay = run.weight_decay,
                                 .step = step.number + 1,
                                 .gradient_scale = step.gradient_scale,
                                 .rounding = by,
                                 .index = run.index + done});
    }
  }
}

optim::Kind kind() {
  return {.footprint = footprint(),
          .sentence = "moments in the format that precision.mode names",
          .keys = keys(),
          .in_less_memory = "adamw8bit",
          .make = make};
}

}  // namespace finetune::optimizers::adamw
