// SPDX-License-Identifier: Apache-2.0
#include "optim/adamw.hpp"

#include <algorithm>

#include "kernels/adamw.hpp"
#include "kernels/composed.hpp"
#include "optim/elements.hpp"

namespace finetune::optim {

AdamW::AdamW(const Settings& settings, const model::ParameterTable& table,
             const shard::ModelShards& shards, at::ScalarType moments_dtype, model::Path path,
             std::uint64_t seed)
    : Optimizer(settings, table, path, seed) {
  exp_avg_.resize(static_cast<std::size_t>(shards.num_units()));
  exp_avg_sq_.resize(exp_avg_.size());
  for (const int unit : shards.trained_units()) {
    const auto i = static_cast<std::size_t>(unit);
    exp_avg_[i] = at::zeros_like(shards.master(unit), moments_dtype);
    exp_avg_sq_[i] = at::zeros_like(shards.master(unit), moments_dtype);
  }
}

std::vector<Kept> AdamW::kept(int unit) const {
  return {{"exp_avg", exp_avg(unit)}, {"exp_avg_sq", exp_avg_sq(unit)}};
}

template <typename Weight, typename Moment>
void AdamW::update(shard::ModelShards& shards, int unit, const Run& run, const Step& step) {
  kernels::AdamWStep<Weight, Moment> args{
      .weight = elements<Weight>(shards.master(unit), run.offset, run.count),
      .exp_avg = elements<Moment>(exp_avg(unit), run.offset, run.count),
      .exp_avg_sq = elements<Moment>(exp_avg_sq(unit), run.offset, run.count),
      .gradient = elements<const float>(step.gradient, run.offset, run.count),
      .weight_bf16 = {},
      .weight_f16 = {},
      .lr = step.lr,
      .beta1 = settings().beta1,
      .beta2 = settings().beta2,
      .epsilon = settings().eps,
      .weight_decay = run.weight_decay,
      .step = step.number + 1,
      .gradient_scale = static_cast<float>(step.gradient_scale),
      .rounding = rounding(step),
      .index = run.index};
  set_copies(shards, unit, run.offset, run.count, args);
  kernels::adamw(args);
}

void AdamW::update_on_host(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                           const Step& step) {
  dispatch(shards.master(unit).scalar_type(), [&]<typename Weight>() {
    dispatch(exp_avg(unit).scalar_type(), [&]<typename Moment>() {
      for (const Run& run : runs)
        update<Weight, Moment>(shards, unit, run, step);
    });
  });
}

void AdamW::update_on_device(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                             const Step& step) {
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
                                {.lr = step.lr,
                                 .beta1 = settings().beta1,
                                 .beta2 = settings().beta2,
                                 .epsilon = settings().eps,
                                 .weight_decay = run.weight_decay,
                                 .step = step.number + 1,
                                 .gradient_scale = step.gradient_scale,
                                 .rounding = by,
                                 .index = run.index + done});
    }
  }
}

}  // namespace finetune::optim
