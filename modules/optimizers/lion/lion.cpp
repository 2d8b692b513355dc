// SPDX-License-Identifier: Apache-2.0
#include "optimizers/lion/kind.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/composed_lion.hpp"
#include "kernels/gpu_kernels.hpp"
#include "kernels/lion.hpp"
#include "optim/elements.hpp"
#include "optim/optimizer.hpp"
#include "shard/options.hpp"

namespace finetune::optimizers::lion {
namespace {

using optim::composed_elements, optim::dispatch, optim::elements, optim::set_copies;

constexpr optim::OptimizerKey beta1 = {
    .name = "beta1",
    .default_value = 0.9,
    .range = {.min = 0, .below = 1},
    .sentence = "Weight of the running mean in the sum whose sign is the update"};
constexpr optim::OptimizerKey beta2 = {.name = "beta2",
                                       .default_value = 0.99,
                                       .range = {.min = 0, .below = 1},
                                       .sentence = "Decay of the running mean of gradients"};

plan::OptimizerFootprint footprint() {
  return {.name = "lion",
          .label = "Lion moment",
          .format = "",
          .states = {{.kind = "exp_avg"}},
          // The sum, its sign and the three updates are written one by one.
          .passes = {.composed_bytes = 32}};
}

/// Keeps one moment of this rank's shards, fp32 or bf16, and steps by its sign.
class Lion : public optim::Optimizer {
 public:
  Lion(const optim::OptimizerSettings& settings, const model::ParameterTable& table,
       const shard::ModelShards& shards, const optim::OptimizerSetup& setup)
      : Optimizer(footprint(), settings, table, shards, shard::to_aten(setup.moments), setup.path,
                  setup.seed),
        beta1_(settings.number(beta1)),
        beta2_(settings.number(beta2)) {}

 private:
  at::Tensor exp_avg(int unit) const { return state(unit, 0); }

  void update_by_kernels(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                         const Step& step) override;
  void update_by_compositions(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                              const Step& step) override;
  bool has_gpu_kernels() const override { return true; }
  template <typename Weight, typename Moment>
  void update(shard::ModelShards& shards, int unit, const Run& run, const Step& step);

  double beta1_, beta2_;
};

template <typename Weight, typename Moment>
void Lion::update(shard::ModelShards& shards, int unit, const Run& run, const Step& step) {
  kernels::LionStep<Weight, Moment> args{
      .weight = elements<Weight>(shards.master(unit), run.offset, run.count),
      .exp_avg = elements<Moment>(exp_avg(unit), run.offset, run.count),
      .gradient = elements<const float>(step.gradient, run.offset, run.count),
      .lr = step.lr * run.lr_ratio,
      .beta1 = beta1_,
      .beta2 = beta2_,
      .weight_decay = run.weight_decay,
      .gradient_scale = static_cast<float>(step.gradient_scale),
      .rounding = rounding(step),
      .index = run.index};
  set_copies(step.copy, run.offset, run.count, args);
  kernels::lion(args, kernels::place_on(shards.master(unit).device()));
}

void Lion::update_by_kernels(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                             const Step& step) {
  dispatch(shards.master(unit).scalar_type(), [&]<typename Weight>() {
    dispatch(exp_avg(unit).scalar_type(), [&]<typename Moment>() {
      for (const Run& run : runs)
        update<Weight, Moment>(shards, unit, run, step);
    });
  });
}

void Lion::update_by_compositions(shard::ModelShards& shards, int unit,
                                  const std::vector<Run>& runs, const Step& step) {
  const bool is_narrow = shards.master(unit).scalar_type() == at::kBFloat16 ||
                         exp_avg(unit).scalar_type() == at::kBFloat16;
  const auto by = is_narrow ? rounding(step) : std::nullopt;
  for (const Run& run : runs) {
    for (std::int64_t done = 0; done < run.count; done += composed_elements) {
      const std::int64_t count = std::min(composed_elements, run.count - done);
      const auto part = [&](const at::Tensor& tensor) {
        return tensor.narrow(0, run.offset + done, count);
      };
      at::Tensor weight = part(shards.master(unit)), moment = part(exp_avg(unit));
      kernels::composed::lion_(weight, moment, part(step.gradient),
                               {.lr = step.lr * run.lr_ratio,
                                .beta1 = beta1_,
                                .beta2 = beta2_,
                                .weight_decay = run.weight_decay,
                                .gradient_scale = step.gradient_scale,
                                .rounding = by,
                                .index = run.index + done});
    }
  }
}

}  // namespace

std::vector<optim::OptimizerKey> keys() {
  return {beta1, beta2};
}

optim::Kind kind() {
  return {.footprint = footprint(),
          .sentence =
              "one moment, and updates of one size (Chen et al. 2023), usually with a fifth of "
              "AdamW's learning rate and five times its weight decay",
          .keys = keys(),
          .in_less_memory = "lion8bit",
          .usual_lr = 0.2,
          .make = [](const optim::OptimizerSettings& settings, const model::ParameterTable& table,
                     const shard::ModelShards& shards,
                     const optim::OptimizerSetup& setup) -> std::unique_ptr<optim::Optimizer> {
            return std::make_unique<Lion>(settings, table, shards, setup);
          }};
}

}  // namespace finetune::optimizers::lion
