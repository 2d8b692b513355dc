#pragma once
// SPDX-License-Identifier: Apache-2.0
// AdamW whose moments take a byte each. Source: Dettmers et al. 2021 (arXiv 2110.02861).

#include <map>
#include <vector>

#include "optim/optimizer.hpp"
#include "optimizers/adamw/adamw.hpp"

namespace finetune::optimizers::adamw8bit {

/// Keeps moments as codes of 8 bits and a scale for every 256 neighbours in the unit's flat buffer,
/// 2.03 bytes per parameter. Blocks begin at multiples of 256 of the unit, so that they are the
/// same on any number of ranks; another parallel.bucket makes other units, and so other blocks.
class AdamW8bit : public optim::Optimizer {
 public:
  /// The shards' map has rules().block a multiple of kernels::moment_block.
  AdamW8bit(const optim::OptimizerSettings& settings, const model::ParameterTable& table,
            const shard::ModelShards& shards, model::Path path = model::Path::kernels,
            std::uint64_t seed = 0);

 private:
  /// Codes [shard_size] u8, scales [shard_size / 256] fp32.
  struct Moments {
    at::Tensor exp_avg, exp_avg_sq;
    at::Tensor exp_avg_scale, exp_avg_sq_scale;
  };
  Moments at(int unit) const;

  void update_by_kernels(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                         const Step& step) override;
  void update_by_compositions(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                              const Step& step) override;

  bool has_gpu_kernels() const override { return true; }
  /// Of a unit's runs where its moments are, as kernels::DecayRun: they never change.
  at::Tensor decay_runs(int unit, const std::vector<Run>& runs);

  adamw::Hyperparameters by_;
  std::map<int, at::Tensor> decay_runs_;  ///< by unit
};

}  // namespace finetune::optimizers::adamw8bit
