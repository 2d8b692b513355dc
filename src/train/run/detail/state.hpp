#pragma once
// SPDX-License-Identifier: Apache-2.0
// Everything of a run that changes from step to step, and its way to and from files.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/load/load.hpp"
#include "checkpoint/save/save.hpp"
#include "model/family.hpp"
#include "model/model.hpp"
#include "optim/loss_scale.hpp"
#include "optim/optimizer.hpp"
#include "plan/plan.hpp"
#include "shard/activation_offload.hpp"
#include "shard/host_copy.hpp"
#include "shard/model_shards.hpp"
#include "train/input/input.hpp"
#include "train/run/stored_parts.hpp"
#include "train/step/passes.hpp"
#include "world/world.hpp"

namespace finetune::train {

/// What is trained, and how: as much of the deck as a step depends on.
struct StateInput {
  const model::ModelFamily& family;
  const model::Architecture& architecture;
  const model::ParameterTable& parameters;
  const optim::OptimizerSettings& optimizer;
  bool overlap = true;  ///< communication with computation
  int prefetch = 1;     ///< stages
  plan::ContextMethod cp_method = plan::ContextMethod::automatic;
  bool registers_buffers = false;  ///< with NCCL
  plan::ActivationCheckpointing recomputation = plan::ActivationCheckpointing::none;
  std::int64_t recomputed_blocks = 0;  ///< whole, in addition
  std::int64_t offloaded_blocks = 0;   ///< their activations are in host memory
  double dropout = 0;                  ///< of an adapter's inputs
  double neftune_alpha = 0;            ///< of noise on embeddings
  double ema_decay = 0;                ///< of a mean of the weights; 0: none
  std::uint64_t seed = 0;              ///< of dropout, noise and stochastic rounding
  bool balances_micro_batch = false;
};

/// Refers to `input`.
StateInput state_input(const Input& input);

/// Weights, moments and the objects that compute with them. Refers to what `input` refers to, and
/// to `plan`.
class State {
 public:
  /// Collective on `world`.
  State(const StateInput& input, const plan::Plan& plan, const world::World& world,
        const shard::Groups& groups);

  Engine engine();
  shard::ModelShards& shards() { return shards_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  /// Null where the precision needs none.
  optim::LossScale* loss_scale() { return loss_scale_ ? &*loss_scale_ : nullptr; }
  const optim::LossScale* loss_scale() const { return loss_scale_ ? &*loss_scale_ : nullptr; }

  /// What this rank stores of weights and moments in a checkpoint: copies of the model share the
  /// work. Valid until `release`: what is on a GPU is copied to host memory for as long.
  std::vector<checkpoint::StoredSlice> stored();
  /// Bytes of that.
  std::int64_t stored_bytes() const;
  /// The same in memory that later steps leave as it is, until `release`. Host memory for the copy
  /// is kept for the next time.
  std::vector<checkpoint::StoredSlice> snapshot();
  /// What it needs from one: all of its shards. Once they are read: `take_wanted`. On a GPU host
  /// memory is taken meanwhile, and nothing is copied from the device.
  std::vector<checkpoint::WantedSlice> wanted();
  void take_wanted();
  void release() {
    on_host_.clear();
    parts_on_host_.clear();
  }

 private:
  /// A run of elements in host memory.
  struct PartOnHost {
    std::size_t copy = 0;  ///< index into on_host_
    std::int64_t first = 0, count = 0;
  };

  /// Every slice of this rank's shards that it stores among `holders`.
  template <typename Slice>
  std::vector<Slice> slices(plan::Holders holders, shard::HostCopy::Contents contents);

  StateInput input_;
  model::ModelPtr model_;
  model::ParameterTable table_;  ///< this rank's part
  plan::ShardMap map_;
  shard::ModelShards shards_;
  std::unique_ptr<model::Ops> ops_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::LossScale> loss_scale_;
  std::optional<shard::ActivationOffload> offload_;
  std::vector<shard::HostCopy> on_host_;
  std::vector<PartOnHost> parts_on_host_;
  at::Tensor snapshot_;  ///< bytes
};

/// How GPUs attend, in words. The same on every rank of a job whose GPUs are alike; of the others
/// rank 0 speaks for itself.
std::string describe_gpu_attention(const Input& input, const comm::Device& device);

}  // namespace finetune::train
