// SPDX-License-Identifier: Apache-2.0
#include "optimizers/adamw8bit/adamw8bit.hpp"

#include <algorithm>
#include <memory>
#include <span>

#include "kernels/adamw8bit.hpp"
#include "kernels/composed_adamw8bit.hpp"
#include "kernels/gpu_kernels.hpp"
#include "optim/elements.hpp"
#include "optimizers/adamw/kind.hpp"
#include "optimizers/adamw8bit/kind.hpp"

namespace finetune::optimizers::adamw8bit {
namespace {

using kernels::moment_block;
using optim::composed_elements, optim::dispatch, optim::elements, optim::set_copies;
static_assert(composed_elements % moment_block == 0, "pieces are whole blocks");

plan::OptimizerFootprint footprint() {
  const auto scale = [](const char* kind) {
    return plan::OptimizerState{
        .kind = kind, .dtype = core::DType::f32, .block = moment_block, .is_signed = false};
  };
  return {.name = "adamw8bit",
          .label = "AdamW moments",
          .format = "8-bit",
          .states = {{.kind = "exp_avg", .dtype = core::DType::u8},
                     {.kind = "exp_avg_sq", .dtype = core::DType::u8, .is_signed = false},
                     scale("exp_avg_scale"),
                     scale("exp_avg_sq_scale")},
          .passes = {.composed_bytes = 48}};
}

std::unique_ptr<optim::Optimizer> make(const optim::OptimizerSettings& settings,
                                       const model::ParameterTable& table,
                                       const shard::ModelShards& shards,
                                       const optim::OptimizerSetup& setup) {
  return std::make_unique<AdamW8bit>(settings, table, shards, setup.path, setup.seed);
}

}  // namespace

AdamW8bit::AdamW8bit(const optim::OptimizerSettings& settings, const model::ParameterTable& table,
                     const shard::ModelShards& shards, model::Path path, std::uint64_t seed)
    : Optimizer(footprint(), settings, table, shards, at::kFloat, path, seed), by_(settings) {}

AdamW8bit::Moments AdamW8bit::at(int unit) const {
  return {state(unit, 0), state(unit, 1), state(unit, 2), state(unit, 3)};
}

at::Tensor AdamW8bit::decay_runs(int unit, const std::vector<Run>& runs) {
  at::Tensor& there = decay_runs_[unit];
  if (there.defined()) return there;
  std::vector<kernels::DecayRun> decays;
  for (const Run& run : runs)
    decays.push_back({run.offset, run.count, run.weight_decay, run.index});
  const auto bytes = static_cast<std::int64_t>(decays.size() * sizeof(kernels::DecayRun));
  const at::Tensor on_host = at::from_blob(decays.data(), {bytes}, at::kByte).clone();
  return there = on_host.to(state(unit, 0).device());
}

void AdamW8bit::update_by_kernels(shard::ModelShards& shards, int unit,
                                  const std::vector<Run>& runs, const Step& step) {
  const at::Tensor master = shards.master(unit);
  const Moments moments = at(unit);
  const at::Tensor decays = decay_runs(unit, runs);
  const at::Tensor tables = kernels::composed::moment_tables_on_device_of(master);
  dispatch(master.scalar_type(), [&]<typename Weight>() {
    kernels::AdamW8bitStep<Weight> args{
        .weight = elements<Weight>(master),
        .exp_avg = elements<std::uint8_t>(moments.exp_avg),
        .exp_avg_sq = elements<std::uint8_t>(moments.exp_avg_sq),
        .exp_avg_scale = elements<float>(moments.exp_avg_scale),
        .exp_avg_sq_scale = elements<float>(moments.exp_avg_sq_scale),
        .gradient = elements<const float>(step.gradient),
        .weight_bf16 = {},
        .weight_f16 = {},
        .runs = {static_cast<const kernels::DecayRun*>(decays.const_data_ptr()), runs.size()},
        .lr = step.lr,
        .beta1 = by_.beta1,
        .beta2 = by_.beta2,
        .epsilon = by_.epsilon,
        .step = step.number + 1,
        .gradient_scale = static_cast<float>(step.gradient_scale),
        .rounding = rounding(step),
        .tables = std::as_bytes(elements<const std::uint8_t>(tables))};
    set_copies(step.copy, 0, master.size(0), args);
    kernels::adamw8bit(args, kernels::place_on(master.device()));
  });
}

void AdamW8bit::update_by_compositions(shard::ModelShards& shards, int unit,
                                       const std::vector<Run>& runs, const Step& step) {
  const at::Tensor master = shards.master(unit);
  const Moments moments = at(unit);
  for (std::int64_t first = 0; first < master.size(0); first += composed_elements) {
    const std::int64_t count = std::min(composed_elements, master.size(0) - first);
    std::vector<kernels::DecayRun> decays;
    for (const Run& run : runs) {
      const std::int64_t begin = std::max(run.offset, first);
      const std::int64_t end = std::min(run.offset + run.count, first + count);
      if (begin < end)
        decays.push_back(
            {begin - first, end - begin, run.weight_decay, run.index + (begin - run.offset)});
    }
    const auto values = [&](const at::Tensor& all) { return all.narrow(0, first, count); };
    const auto scales = [&](const at::Tensor& all) {
      return all.narrow(0, first / moment_block, count / moment_block);
    };
    at::Tensor weight = values(master);
    kernels::composed::adamw8bit_(weight,
                                  {.exp_avg = values(moments.exp_avg),
                                   .exp_avg_sq = values(moments.exp_avg_sq),
                                   .exp_avg_scale = scales(moments.exp_avg_scale),
                                   .exp_avg_sq_scale = scales(moments.exp_avg_sq_scale)},
                                  values(step.gradient),
                                  {.lr = step.lr,
                                   .beta1 = by_.beta1,
                                   .beta2 = by_.beta2,
                                   .epsilon = by_.epsilon,
                                   .weight_decay = 0,
                                   .step = step.number + 1,
                                   .gradient_scale = step.gradient_scale,
                                   .rounding = rounding(step)},
                                  decays);
  }
}

optim::Kind kind() {
  return {.footprint = footprint(),
          .sentence = "moments in 8 bits, with one scale per 256, a quarter of fp32's memory",
          .keys = adamw::keys(),
          .has_lr_ratios = false,
          .make = make};
}

}  // namespace finetune::optimizers::adamw8bit
