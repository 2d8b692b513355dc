#pragma once
// SPDX-License-Identifier: Apache-2.0
// AdamW over the shards of a model.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "model/parameter_table.hpp"
#include "optim/settings.hpp"
#include "shard/model_shards.hpp"

namespace finetune::optim {

/// Keeps the two moments of this rank's shards, fp32 or bf16. Source: Loshchilov & Hutter 2019
/// (arXiv 1711.05101).
class AdamW {
 public:
  AdamW(const Settings& settings, const model::ParameterTable& table,
        const shard::ModelShards& shards, at::ScalarType moments_dtype = at::kFloat);

  /// Updates the master weights (fp32 or bf16) from the fp32 gradient sums and publishes them
  /// (fp32, bf16 or fp16). `step` counts from 0 over the whole run; gradients are multiplied by
  /// `gradient_scale` first.
  void step(shard::ModelShards& shards, std::int64_t step, double lr, double gradient_scale);

  /// [shard_size] of a unit, in the moments' dtype.
  at::Tensor exp_avg(int unit) const { return exp_avg_[static_cast<std::size_t>(unit)]; }
  at::Tensor exp_avg_sq(int unit) const { return exp_avg_sq_[static_cast<std::size_t>(unit)]; }

 private:
  /// Neighbouring trained elements of a shard with the same weight decay.
  struct Run {
    std::int64_t offset = 0;
    std::int64_t count = 0;
    bool decayed = false;
  };
  struct Step {
    at::Tensor gradient;  ///< of a unit, where the master weights are
    std::int64_t number = 0;
    double lr = 0;
    double gradient_scale = 1;
  };
  template <typename Weight, typename Moment>
  void update(shard::ModelShards& shards, int unit, const Run& run, const Step& step);
  void update_on_device(shard::ModelShards& shards, int unit, const Run& run, const Step& step);
  std::vector<Run> runs(const shard::ModelShards& shards, int unit) const;

  Settings settings_;
  const model::ParameterTable& table_;
  std::vector<at::Tensor> exp_avg_;
  std::vector<at::Tensor> exp_avg_sq_;
};

}  // namespace finetune::optim
