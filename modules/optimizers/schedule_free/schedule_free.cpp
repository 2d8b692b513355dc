// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/composed_schedule_free.hpp"
#include "kernels/gpu_kernels.hpp"
#include "kernels/schedule_free.hpp"
#include "optim/elements.hpp"
#include "optim/optimizer.hpp"
#include "optimizers/schedule_free/kind.hpp"
#include "shard/options.hpp"

namespace finetune::optimizers::schedule_free {
namespace {

using optim::composed_elements, optim::dispatch, optim::elements, optim::set_copies;

constexpr optim::OptimizerKey beta1 = {
    .name = "beta1",
    .default_value = 0.9,
    .range = {.min = 0, .below = 1},
    .sentence = "Where gradients are taken: so much of the way from z to the mean of all z"};
constexpr optim::OptimizerKey beta2 = {
    .name = "beta2",
    .default_value = 0.999,
    .range = {.min = 0, .below = 1},
    .sentence = "Decay of the running mean of squared gradients"};
constexpr optim::OptimizerKey epsilon = {
    .name = "eps",
    .default_value = 1e-8,
    .range = {.above = 0},
    .sentence = "Added to the square root of the second moment"};

plan::OptimizerFootprint footprint() {
  return {.name = "schedule_free",
          .label = "z and second moment",
          .format = "",
          .states = {{.kind = "z"}, {.kind = "exp_avg_sq", .is_signed = false}},
          .passes = {.composed_bytes = 76},
          .evaluates_others = true};
}

/// The mean x of all z, from z and from y, which is beta1 of the way from z to x.
double factor_of_z(const optim::OptimizerSettings& settings) {
  return 1.0 - 1.0 / settings.number(beta1);
}

/// Sum of the squared learning rates of steps 1 to `step`, the last of them being 1: a constant
/// one, behind a warm-up over `warmup` steps. Closed, so that a restart needs no state.
double sum_of_squares(std::int64_t step, std::int64_t warmup) {
  const auto n = static_cast<double>(std::min(step, warmup)), w = static_cast<double>(warmup);
  const double rising = warmup == 0 ? 0 : n * (n + 1) * (2 * n + 1) / (6 * w * w);
  return rising + static_cast<double>(std::max<std::int64_t>(0, step - warmup));
}

/// Keeps z and the second moment of this rank's shards, fp32 or bf16. Master weights are y.
class ScheduleFree : public optim::Optimizer {
 public:
  ScheduleFree(const optim::OptimizerSettings& settings, const model::ParameterTable& table,
               const shard::ModelShards& shards, const optim::OptimizerSetup& setup)
      : Optimizer(footprint(), settings, table, shards, shard::to_aten(setup.moments), setup.path,
                  setup.seed),
        beta1_(settings.number(beta1)),
        beta2_(settings.number(beta2)),
        epsilon_(settings.number(epsilon)) {}

 private:
  at::Tensor z(int unit) const { return state(unit, 0); }
  at::Tensor exp_avg_sq(int unit) const { return state(unit, 1); }

  void update_by_kernels(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                         const Step& step) override;
  void update_by_compositions(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                              const Step& step) override;
  bool has_gpu_kernels() const override { return true; }
  at::Tensor weights_to_evaluate(int unit, const at::Tensor& master) const override;
  template <typename Weight, typename Moment>
  void update(shard::ModelShards& shards, int unit, const Run& run, const Step& step);

  /// z begins where the weights do, also those that are not trained: their mean is themselves.
  void begin(const shard::ModelShards& shards, int unit, const Step& step) {
    if (step.number == 0) z(unit).copy_(shards.master(unit));
  }
  /// Of the newest z in the mean of all, each weighted by the square of its learning rate.
  double average(const Step& step) const {
    const std::int64_t number = step.number + 1, warmup = settings().warmup_steps;
    const double rate =
        number < warmup ? static_cast<double>(number) / static_cast<double>(warmup) : 1.0;
    return rate * rate / sum_of_squares(number, warmup);
  }

  double beta1_, beta2_, epsilon_;
};

template <typename Weight, typename Moment>
void ScheduleFree::update(shard::ModelShards& shards, int unit, const Run& run, const Step& step) {
  kernels::ScheduleFreeStep<Weight, Moment> args{
      .weight = elements<Weight>(shards.master(unit), run.offset, run.count),
      .z = elements<Moment>(z(unit), run.offset, run.count),
      .exp_avg_sq = elements<Moment>(exp_avg_sq(unit), run.offset, run.count),
      .gradient = elements<const float>(step.gradient, run.offset, run.count),
      .lr = step.lr * run.lr_ratio,
      .beta1 = beta1_,
      .beta2 = beta2_,
      .epsilon = epsilon_,
      .weight_decay = run.weight_decay,
      .average = average(step),
      .step = step.number + 1,
      .gradient_scale = static_cast<float>(step.gradient_scale),
      .rounding = rounding(step),
      .index = run.index};
  set_copies(step.copy, run.offset, run.count, args);
  kernels::schedule_free(args, kernels::place_on(shards.master(unit).device()));
}

void ScheduleFree::update_by_kernels(shard::ModelShards& shards, int unit,
                                     const std::vector<Run>& runs, const Step& step) {
  begin(shards, unit, step);
  dispatch(shards.master(unit).scalar_type(), [&]<typename Weight>() {
    dispatch(z(unit).scalar_type(), [&]<typename Moment>() {
      for (const Run& run : runs)
        update<Weight, Moment>(shards, unit, run, step);
    });
  });
}

void ScheduleFree::update_by_compositions(shard::ModelShards& shards, int unit,
                                          const std::vector<Run>& runs, const Step& step) {
  begin(shards, unit, step);
  const bool is_narrow =
      shards.master(unit).scalar_type() == at::kBFloat16 || z(unit).scalar_type() == at::kBFloat16;
  const auto by = is_narrow ? rounding(step) : std::nullopt;
  for (const Run& run : runs) {
    for (std::int64_t done = 0; done < run.count; done += composed_elements) {
      const std::int64_t count = std::min(composed_elements, run.count - done);
      const auto part = [&](const at::Tensor& tensor) {
        return tensor.narrow(0, run.offset + done, count);
      };
      at::Tensor weight = part(shards.master(unit)), at_z = part(z(unit)),
                 v = part(exp_avg_sq(unit));
      kernels::composed::schedule_free_(weight, at_z, v, part(step.gradient),
                                        {.lr = step.lr * run.lr_ratio,
                                         .beta1 = beta1_,
                                         .beta2 = beta2_,
                                         .epsilon = epsilon_,
                                         .weight_decay = run.weight_decay,
                                         .average = average(step),
                                         .step = step.number + 1,
                                         .gradient_scale = step.gradient_scale,
                                         .rounding = by,
                                         .index = run.index + done});
    }
  }
}

at::Tensor ScheduleFree::weights_to_evaluate(int unit, const at::Tensor& master) const {
  const at::Tensor y = master.to(at::kFloat);
  return z(unit).to(at::kFloat).sub(y).mul_(static_cast<float>(factor_of_z(settings()))).add_(y);
}

}  // namespace

optim::Kind kind() {
  return {.footprint = footprint(),
          .sentence =
              "AdamW whose mean of all steps takes the place of a schedule (Defazio et al. 2024): "
              "schedule = \"constant\", with warmup_steps; the mean is validated and exported",
          .keys = {beta1, beta2, epsilon},
          .has_schedule = false,
          .evaluated = optim::EvaluatedWeights{.state = "z", .factor = factor_of_z},
          .make = [](const optim::OptimizerSettings& settings, const model::ParameterTable& table,
                     const shard::ModelShards& shards,
                     const optim::OptimizerSetup& setup) -> std::unique_ptr<optim::Optimizer> {
            return std::make_unique<ScheduleFree>(settings, table, shards, setup);
          }};
}

}  // namespace finetune::optimizers::schedule_free
