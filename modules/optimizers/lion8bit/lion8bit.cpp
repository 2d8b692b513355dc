// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/composed_lion8bit.hpp"
#include "kernels/lion8bit.hpp"
#include "optim/elements.hpp"
#include "optim/optimizer.hpp"
#include "optimizers/lion/kind.hpp"
#include "optimizers/lion8bit/kind.hpp"

namespace finetune::optimizers::lion8bit {
namespace {

using kernels::moment_block;
using optim::composed_elements, optim::dispatch, optim::elements, optim::set_copies;
static_assert(composed_elements % moment_block == 0, "pieces are whole blocks");

plan::OptimizerFootprint footprint() {
  return {.name = "lion8bit",
          .label = "Lion moment",
          .format = "8-bit",
          .states = {{.kind = "exp_avg", .dtype = core::DType::u8},
                     {.kind = "exp_avg_scale",
                      .dtype = core::DType::f32,
                      .block = moment_block,
                      .is_signed = false}},
          .passes = {.composed_bytes = 32}};
}

/// Keeps a moment as codes of 8 bits and a scale for every 256 neighbours in the unit's flat
/// buffer, 1.02 bytes per parameter, in the blocks of adamw8bit.
class Lion8bit : public optim::Optimizer {
 public:
  Lion8bit(const optim::OptimizerSettings& settings, const model::ParameterTable& table,
           const shard::ModelShards& shards, const optim::OptimizerSetup& setup)
      : Optimizer(footprint(), settings, table, shards, at::kFloat, setup.path, setup.seed) {
    const auto keys = lion::keys();
    beta1_ = settings.number(keys[0]);
    beta2_ = settings.number(keys[1]);
  }

 private:
  /// Codes [shard_size] u8, scales [shard_size / 256] fp32.
  at::Tensor exp_avg(int unit) const { return state(unit, 0); }
  at::Tensor exp_avg_scale(int unit) const { return state(unit, 1); }

  void update_by_kernels(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                         const Step& step) override;
  void update_by_compositions(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                              const Step& step) override;

  /// Of what lies in [first, first + count), counted from `first`.
  static std::vector<kernels::LionRun> runs_in(const std::vector<Run>& runs, std::int64_t first,
                                               std::int64_t count);

  double beta1_ = 0, beta2_ = 0;
};

std::vector<kernels::LionRun> Lion8bit::runs_in(const std::vector<Run>& runs, std::int64_t first,
                                                std::int64_t count) {
  std::vector<kernels::LionRun> all;
  for (const Run& run : runs) {
    const std::int64_t begin = std::max(run.offset, first);
    const std::int64_t end = std::min(run.offset + run.count, first + count);
    if (begin < end)
      all.push_back({begin - first, end - begin, run.weight_decay, run.lr_ratio,
                     run.index + (begin - run.offset)});
  }
  return all;
}

void Lion8bit::update_by_kernels(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                                 const Step& step) {
  const at::Tensor master = shards.master(unit);
  const auto all = runs_in(runs, 0, master.size(0));
  dispatch(master.scalar_type(), [&]<typename Weight>() {
    kernels::Lion8bitStep<Weight> args{.weight = elements<Weight>(master),
                                       .exp_avg = elements<std::uint8_t>(exp_avg(unit)),
                                       .exp_avg_scale = elements<float>(exp_avg_scale(unit)),
                                       .gradient = elements<const float>(step.gradient),
                                       .runs = all,
                                       .lr = step.lr,
                                       .beta1 = beta1_,
                                       .beta2 = beta2_,
                                       .gradient_scale = static_cast<float>(step.gradient_scale),
                                       .rounding = rounding(step)};
    set_copies(step.copy, 0, master.size(0), args);
    kernels::lion8bit(args);
  });
}

void Lion8bit::update_by_compositions(shard::ModelShards& shards, int unit,
                                      const std::vector<Run>& runs, const Step& step) {
  const at::Tensor master = shards.master(unit);
  for (std::int64_t first = 0; first < master.size(0); first += composed_elements) {
    const std::int64_t count = std::min(composed_elements, master.size(0) - first);
    at::Tensor weight = master.narrow(0, first, count);
    kernels::composed::lion8bit_(
        weight, exp_avg(unit).narrow(0, first, count),
        exp_avg_scale(unit).narrow(0, first / moment_block, count / moment_block),
        step.gradient.narrow(0, first, count),
        {.lr = step.lr,
         .beta1 = beta1_,
         .beta2 = beta2_,
         .weight_decay = 0,
         .gradient_scale = step.gradient_scale,
         .rounding = rounding(step)},
        runs_in(runs, first, count));
  }
}

}  // namespace

optim::Kind kind() {
  return {.footprint = footprint(),
          .sentence = "its moment in 8 bits, with one scale per 256, an eighth of what AdamW keeps",
          .keys = lion::keys(),
          .usual_lr = 0.2,
          .make = [](const optim::OptimizerSettings& settings, const model::ParameterTable& table,
                     const shard::ModelShards& shards,
                     const optim::OptimizerSetup& setup) -> std::unique_ptr<optim::Optimizer> {
            return std::make_unique<Lion8bit>(settings, table, shards, setup);
          }};
}

}  // namespace finetune::optimizers::lion8bit
