// SPDX-License-Identifier: Apache-2.0
#include "optim/adamw.hpp"

#include <span>

#include "kernels/adamw.hpp"

namespace finetune::optim {
namespace {

std::span<float> part(const at::Tensor& tensor, std::int64_t offset, std::int64_t count) {
  return {tensor.data_ptr<float>() + offset, static_cast<std::size_t>(count)};
}

}  // namespace

AdamW::AdamW(const Settings& settings, const model::ParameterTable& table,
             const shard::ModelShards& shards)
    : settings_(settings), table_(table) {
  for (int unit = 0; unit < shards.num_units(); ++unit) {
    exp_avg_.push_back(at::zeros_like(shards.master(unit)));
    exp_avg_sq_.push_back(at::zeros_like(shards.master(unit)));
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

void AdamW::step(shard::ModelShards& shards, std::int64_t step, double lr, double gradient_scale) {
  for (int unit = 0; unit < shards.num_units(); ++unit) {
    const at::Tensor master = shards.master(unit);
    const at::Tensor published = shards.published(unit);
    const at::Tensor gradient = shards.gradient(unit);
    const bool has_copy = published.scalar_type() == at::kBFloat16;
    for (const Run& run : runs(shards, unit)) {
      kernels::AdamWStep args{.weight = part(master, run.offset, run.count),
                              .exp_avg = part(exp_avg(unit), run.offset, run.count),
                              .exp_avg_sq = part(exp_avg_sq(unit), run.offset, run.count),
                              .gradient = part(gradient, run.offset, run.count),
                              .weight_bf16 = {},
                              .lr = lr,
                              .beta1 = settings_.beta1,
                              .beta2 = settings_.beta2,
                              .epsilon = settings_.eps,
                              .weight_decay = run.decayed ? settings_.weight_decay : 0.0,
                              .step = step + 1,
                              .gradient_scale = static_cast<float>(gradient_scale)};
      if (has_copy) {
        auto* bits = reinterpret_cast<kernels::bf16*>(published.data_ptr<at::BFloat16>());
        args.weight_bf16 = {bits + run.offset, static_cast<std::size_t>(run.count)};
      }
      kernels::adamw(args);
    }
  }
}

}  // namespace finetune::optim
