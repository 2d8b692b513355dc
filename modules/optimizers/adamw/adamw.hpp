#pragma once
// SPDX-License-Identifier: Apache-2.0
// AdamW over the shards of a model. Source: Loshchilov & Hutter 2019 (arXiv 1711.05101).

#include <vector>

#include "optim/optimizer.hpp"

namespace finetune::optimizers::adamw {

/// What the keys say.
struct Hyperparameters {
  double beta1, beta2, epsilon;

  explicit Hyperparameters(const optim::OptimizerSettings& settings);
};

/// Keeps the two moments of this rank's shards, fp32 or bf16.
class AdamW : public optim::Optimizer {
 public:
  AdamW(const optim::OptimizerSettings& settings, const model::ParameterTable& table,
        const shard::ModelShards& shards, at::ScalarType moments_dtype = at::kFloat,
        model::Path path = model::Path::kernels, std::uint64_t seed = 0);

  /// [shard_size] of a trained unit, in the moments' dtype.
  at::Tensor exp_avg(int unit) const { return state(unit, 0); }
  at::Tensor exp_avg_sq(int unit) const { return state(unit, 1); }

 private:
  void update_by_kernels(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                         const Step& step) override;
  void update_by_compositions(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                              const Step& step) override;
  bool has_gpu_kernels() const override { return true; }
  template <typename Weight, typename Moment>
  void update(shard::ModelShards& shards, int unit, const Run& run, const Step& step);

  Hyperparameters by_;
};

}  // namespace finetune::optimizers::adamw
