#pragma once
// SPDX-License-Identifier: Apache-2.0
// What turns the gradients of a step into new weights, and what it remembers for the next.

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/rounding.hpp"
#include "model/ops.hpp"
#include "model/parameter_table.hpp"
#include "optim/settings.hpp"
#include "plan/optimizer.hpp"
#include "shard/compute_timer.hpp"
#include "shard/model_shards.hpp"

namespace finetune::optim {

/// A tensor that an optimizer keeps of this rank's shard of a unit.
struct StateTensor {
  std::string kind;  ///< "exp_avg", ...: the kind of its tensors in a checkpoint
  at::Tensor values;
  /// Elements of the unit's flat buffer that a value is of. 1: values are [shard_size]. More: they
  /// are [shard_size / block], of this many neighbours each; the last ones may be of padding.
  std::int64_t block = 1;
  /// Factors: those of all rows of the unit, one after the other, the same on every rank of it.
  plan::OptimizerState::Of of = plan::OptimizerState::Of::elements;
};

/// Keeps the states of its footprint, all zeros before the first step. Refers to `table`.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates the master weights (fp32 or bf16) from the fp32 gradient sums and publishes them
  /// (fp32, bf16 or fp16). `step` counts from 0 over the whole run; gradients are multiplied by
  /// `gradient_scale` first. Of `next`, units that the next pass begins with, starts to gather each
  /// as soon as it is published: collective on fsdp.
  void step(shard::ModelShards& shards, std::int64_t step, double lr, double gradient_scale,
            const std::vector<int>& next = {});

  /// The same of one unit, whose gradient is complete while others are still computed: for all
  /// trained units of step `step`, one after the other, on every rank in the same order. Its
  /// weights are closed and not gathered. Not where the states are offloaded.
  void step_unit(shard::ModelShards& shards, int unit, std::int64_t step, double lr);

  /// From now on steps also keep an exponential mean of the weights, fp32: a state of the kind
  /// `ema_state` behind those of the footprint. After update t it is the mean of the weights after
  /// updates 1 ... t, weighted by decay^(t - i): ema_t = ema_(t-1) + r_t (w_t - ema_(t-1)) with
  /// r_t = (1 - decay) / (1 - decay^t), so that it begins as the first weights and not as zeros.
  /// Rows that are not trained have the mean of a constant, which they are.
  /// Source: Polyak & Juditsky 1992; the correction of Kingma & Ba 2015 (arXiv 1412.6980), part 3.
  /// Before the first step, once; 0 < decay < 1.
  void keep_ema(const shard::ModelShards& shards, double decay);

  /// Whether there are others than those that are trained to evaluate and to export, once there
  /// was an update.
  bool has_other_weights() const { return keeps_ema() || replaces_weights(); }
  /// They are a mean beside the weights.
  bool keeps_ema() const { return ema_decay_ > 0; }
  /// Those that are trained are only for training.
  bool replaces_weights() const { return footprint_.evaluates_others; }
  /// Lets `shards` gather the weights to evaluate from now on, until shards.publish_all() makes
  /// them gather those that are trained. Units are closed. Collective as shards.publish.
  void publish_other_weights(shard::ModelShards& shards) const;

  /// Seconds that the last `step` took; on a GPU, where the host does not wait for it, the last one
  /// that is over, 0 before.
  double step_s() { return timer_.seconds(); }

  /// Of a trained unit: the footprint's states in their order.
  std::vector<StateTensor> kept(int unit) const;
  /// One of them: `i_state` counts in the footprint. Undefined for a frozen unit.
  at::Tensor state(int unit, std::size_t i_state) const;

 protected:
  /// Neighbouring trained elements of a shard with the same weight decay and learning rate.
  struct Run {
    std::int64_t offset = 0;
    std::int64_t count = 0;
    double weight_decay = 0;
    std::int64_t index = 0;  ///< of the first one among all that are trained, on any shards
    double lr_ratio = 1;     ///< to the step's
  };
  /// A run of one row.
  struct Piece : Run {
    int row = 0;
    std::int64_t tensor_offset = 0;  ///< first element within the row
  };
  struct Step {
    at::Tensor gradient;  ///< of a unit, where the master weights are
    /// Of the unit in the computation's dtype, on the host, for a kernel to write in the same pass;
    /// undefined: there is none.
    at::Tensor copy;
    std::int64_t number = 0;
    double lr = 0;
    double gradient_scale = 1;
  };

  /// `moments`: the dtype of states whose footprint names none, fp32 or bf16. `path`: composed on
  /// a CPU does what a GPU does. `seed`: of stochastic rounding.
  /// Throws: ErrorKind::bug if shards do not begin at multiples of the footprint's block.
  Optimizer(plan::OptimizerFootprint footprint, const OptimizerSettings& settings,
            const model::ParameterTable& table, const shard::ModelShards& shards,
            at::ScalarType moments, model::Path path, std::uint64_t seed);

  /// Where kernels compute. They write the published copy in the same pass if it is on the host.
  virtual void update_by_kernels(shard::ModelShards& shards, int unit, const std::vector<Run>& runs,
                                 const Step& step) = 0;
  /// Compositions of ATen functions, everywhere else; the copy is made afterwards.
  virtual void update_by_compositions(shard::ModelShards& shards, int unit,
                                      const std::vector<Run>& runs, const Step& step) = 0;

  /// Of an optimizer whose footprint says that it evaluates others than `master`: those, fp32
  /// [shard_size], after the first update.
  virtual at::Tensor weights_to_evaluate(int unit, const at::Tensor& master) const;

  /// Whether update_by_kernels also serves memory of a GPU.
  virtual bool has_gpu_kernels() const { return false; }

  const OptimizerSettings& settings() const { return settings_; }
  /// `runs` of a unit, cut where rows end.
  std::vector<Piece> pieces_of(const shard::ModelShards& shards, int unit,
                               const std::vector<Run>& runs) const;
  /// How bf16 is rounded in a step; nothing: to nearest.
  std::optional<kernels::RoundingKey> rounding(const Step& step) const;

 private:
  std::vector<Run> runs(const shard::ModelShards& shards, int unit) const;
  void update(shard::ModelShards& shards, int unit, const Step& step);
  void average(const shard::ModelShards& shards, int unit, std::int64_t step);
  /// Zeros for this rank's shard of a unit.
  at::Tensor new_state(const plan::OptimizerState& state, const shard::ModelShards& shards,
                       int unit) const;
  /// What no run is of: padding, and rows that are not trained. A kernel leaves it as it was.
  static void cast_the_rest(const at::Tensor& master, const std::vector<Run>& runs,
                            const at::Tensor& copy);

  plan::OptimizerFootprint footprint_;
  OptimizerSettings settings_;
  const model::ParameterTable& table_;
  at::ScalarType moments_;
  model::Path path_;
  std::uint64_t seed_;
  double ema_decay_ = 0;  ///< 0: no mean is kept
  shard::ComputeTimer timer_;
  std::vector<std::int64_t> first_index_;        ///< by row: trained elements in the rows before it
  std::vector<std::vector<at::Tensor>> states_;  ///< by unit and state; none of frozen units
};

}  // namespace finetune::optim
