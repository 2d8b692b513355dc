#pragma once
// SPDX-License-Identifier: Apache-2.0
// AdamW over the shards of a model.

#include "optim/optimizer.hpp"

namespace finetune::optim {

/// Keeps the two moments of this rank's shards, fp32 or bf16. Source: Loshchilov & Hutter 2019
/// (arXiv 1711.05101).
class AdamW : public Optimizer {
 public:
  AdamW(const Settings& settings, const model::ParameterTable& table,
        const shard::ModelShards& shards, at::ScalarType moments_dtype = at::kFloat,
        model::Path path = model::Path::kernels, std::uint64_t seed = 0);

  /// [shard_size] of a trained unit, in the moments' dtype.
  at::Tensor exp_avg(int unit) const { return exp_avg_[static_cast<std::size_t>(unit)]; }
  at::Tensor exp_avg_sq(int unit) const { return exp_avg_sq_[static_cast<std::size_t>(unit)]; }

  std::vector<Kept> kept(int unit) const override;

 private:
  void update_on_host(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                      const Step& step) override;
  void update_on_device(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                        const Step& step) override;
  template <typename Weight, typename Moment>
  void update(shard::ModelShards& shards, int unit, const Run& run, const Step& step);

  std::vector<at::Tensor> exp_avg_;
  std::vector<at::Tensor> exp_avg_sq_;
};

}  // namespace finetune::optim
