// SPDX-License-Identifier: Apache-2.0
#include "optim/adamw8bit.hpp"

#include <algorithm>

#include "kernels/adamw8bit.hpp"
#include "kernels/composed_adamw8bit.hpp"
#include "optim/elements.hpp"

namespace finetune::optim {
namespace {

using kernels::moment_block;
static_assert(composed_elements % moment_block == 0, "pieces are whole blocks");

}  // namespace

AdamW8bit::AdamW8bit(const Settings& settings, const model::ParameterTable& table,
                     const shard::ModelShards& shards, model::Path path, std::uint64_t seed)
    : Optimizer(settings, table, path, seed) {
  core::check(shards.map().rules().block % moment_block == 0, "shards are whole blocks of moments");
  moments_.resize(static_cast<std::size_t>(shards.num_units()));
  for (const int unit : shards.trained_units()) {
    const at::Tensor master = shards.master(unit);
    const auto zeros = [&](std::int64_t count, at::ScalarType dtype) {
      return at::zeros({count}, master.options().dtype(dtype));
    };
    const std::int64_t count = master.size(0), blocks = count / moment_block;
    moments_[static_cast<std::size_t>(unit)] = {.exp_avg = zeros(count, at::kByte),
                                                .exp_avg_sq = zeros(count, at::kByte),
                                                .exp_avg_scale = zeros(blocks, at::kFloat),
                                                .exp_avg_sq_scale = zeros(blocks, at::kFloat)};
  }
}

std::vector<Kept> AdamW8bit::kept(int unit) const {
  const Moments& moments = at(unit);
  return {{"exp_avg", moments.exp_avg},
          {"exp_avg_sq", moments.exp_avg_sq},
          {"exp_avg_scale", moments.exp_avg_scale, moment_block},
          {"exp_avg_sq_scale", moments.exp_avg_sq_scale, moment_block}};
}

void AdamW8bit::update_on_host(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                               const Step& step) {
  const at::Tensor master = shards.master(unit);
  const Moments& moments = at(unit);
  std::vector<kernels::DecayRun> decays;
  for (const Run& run : runs)
    decays.push_back({run.offset, run.count, run.weight_decay, run.index});
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
        .runs = decays,
        .lr = step.lr,
        .beta1 = settings().beta1,
        .beta2 = settings().beta2,
        .epsilon = settings().eps,
        .step = step.number + 1,
        .gradient_scale = static_cast<float>(step.gradient_scale),
        .rounding = rounding(step)};
    set_copies(shards, unit, 0, master.size(0), args);
    kernels::adamw8bit(args);
  });
}

void AdamW8bit::update_on_device(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                                 const Step& step) {
  const at::Tensor master = shards.master(unit);
  const Moments& moments = at(unit);
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
                                   .beta1 = settings().beta1,
                                   .beta2 = settings().beta2,
                                   .epsilon = settings().eps,
                                   .weight_decay = 0,
                                   .step = step.number + 1,
                                   .gradient_scale = step.gradient_scale,
                                   .rounding = rounding(step)},
                                  decays);
  }
}

}  // namespace finetune::optim
