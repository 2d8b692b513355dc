// SPDX-License-Identifier: Apache-2.0
#include "optim/adamw.hpp"

#include <span>

#include "core/error.hpp"
#include "kernels/adamw.hpp"
#include "kernels/composed.hpp"
#include "shard/host_copy.hpp"

namespace finetune::optim {
namespace {

/// Elements as the kernels know them: bfloat16 and half travel as their bits.
template <typename T>
std::span<T> part(const at::Tensor& tensor, std::int64_t offset, std::int64_t count) {
  return {static_cast<T*>(tensor.data_ptr()) + offset, static_cast<std::size_t>(count)};
}

/// Calls f.operator()<T>() with the kernels' element type of what the optimizer keeps.
template <typename F>
void dispatch(at::ScalarType dtype, const F& f) {
  core::check(dtype == at::kFloat || dtype == at::kBFloat16,
              "the optimizer keeps its state in fp32 or bf16");
  if (dtype == at::kFloat) {
    f.template operator()<float>();
  } else {
    f.template operator()<kernels::bf16>();
  }
}

}  // namespace

AdamW::AdamW(const Settings& settings, const model::ParameterTable& table,
             const shard::ModelShards& shards, at::ScalarType moments_dtype)
    : settings_(settings), table_(table) {
  for (int unit = 0; unit < shards.num_units(); ++unit) {
    exp_avg_.push_back(at::zeros_like(shards.master(unit), moments_dtype));
    exp_avg_sq_.push_back(at::zeros_like(shards.master(unit), moments_dtype));
  }
}

std::vector<AdamW::Run> AdamW::runs(const shard::ModelShards& shards, int unit) const {
  std::vector<Run> runs;
  for (const plan::ShardSlice& slice : shards.map().slices(unit, shards.fsdp().rank())) {
    const model::Parameter& row = table_.rows[static_cast<std::size_t>(slice.row)];
    if (!row.trainable) continue;
    const bool is_next =
        !runs.empty() && runs.back().offset + runs.back().count == slice.shard_offset;
    if (is_next && runs.back().decayed == row.decayed) {
      runs.back().count += slice.count;
    } else {
      runs.push_back({slice.shard_offset, slice.count, row.decayed});
    }
  }
  return runs;
}

template <typename Weight, typename Moment>
void AdamW::update(shard::ModelShards& shards, int unit, const Run& run, const Step& step) {
  const at::Tensor published = shards.published(unit);
  kernels::AdamWStep<Weight, Moment> args{
      .weight = part<Weight>(shards.master(unit), run.offset, run.count),
      .exp_avg = part<Moment>(exp_avg(unit), run.offset, run.count),
      .exp_avg_sq = part<Moment>(exp_avg_sq(unit), run.offset, run.count),
      .gradient = part<const float>(step.gradient, run.offset, run.count),
      .weight_bf16 = {},
      .weight_f16 = {},
      .lr = step.lr,
      .beta1 = settings_.beta1,
      .beta2 = settings_.beta2,
      .epsilon = settings_.eps,
      .weight_decay = run.decayed ? settings_.weight_decay : 0.0,
      .step = step.number + 1,
      .gradient_scale = static_cast<float>(step.gradient_scale)};
  if (published.is_cpu() && !published.is_same(shards.master(unit))) {
    if (published.scalar_type() == at::kBFloat16)
      args.weight_bf16 = part<kernels::bf16>(published, run.offset, run.count);
    if (published.scalar_type() == at::kHalf)
      args.weight_f16 = part<kernels::f16>(published, run.offset, run.count);
  }
  kernels::adamw(args);
}

void AdamW::update_on_device(shard::ModelShards& shards, int unit, const Run& run,
                             const Step& step) {
  const auto part = [&](const at::Tensor& tensor) {
    return tensor.narrow(0, run.offset, run.count);
  };
  at::Tensor weight = part(shards.master(unit));
  at::Tensor m = part(exp_avg(unit));
  at::Tensor v = part(exp_avg_sq(unit));
  kernels::composed::adamw_(weight, m, v, part(step.gradient),
                            {.lr = step.lr,
                             .beta1 = settings_.beta1,
                             .beta2 = settings_.beta2,
                             .epsilon = settings_.eps,
                             .weight_decay = run.decayed ? settings_.weight_decay : 0.0,
                             .step = step.number + 1,
                             .gradient_scale = step.gradient_scale});
}

void AdamW::step(shard::ModelShards& shards, std::int64_t step, double lr, double gradient_scale) {
  for (int unit = 0; unit < shards.num_units(); ++unit) {
    const at::Tensor master = shards.master(unit);
    if (!master.is_cpu()) {
      const Step numbers{shards.gradient(unit), step, lr, gradient_scale};
      for (const Run& run : runs(shards, unit))
        update_on_device(shards, unit, run, numbers);
    } else {
      const shard::HostCopy gradient(shards.gradient(unit));
      const Step numbers{gradient.host(), step, lr, gradient_scale};
      dispatch(master.scalar_type(), [&]<typename Weight>() {
        dispatch(exp_avg(unit).scalar_type(), [&]<typename Moment>() {
          for (const Run& run : runs(shards, unit))
            update<Weight, Moment>(shards, unit, run, numbers);
        });
      });
    }
    // On the host the kernel has written the copy in the same pass.
    if (!shards.published(unit).is_cpu()) shards.publish(unit);
  }
}

}  // namespace finetune::optim
