#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model folder loaded whole into this process, without optimizer: for generation and tests.

#include <cstdint>
#include <filesystem>
#include <memory>

#include "comm/communicator.hpp"
#include "comm/device.hpp"
#include "kernels/gpu_kernels.hpp"
#include "plan/layout/shard_map.hpp"
#include "train/input/registry.hpp"
#include "train/step/passes.hpp"

namespace finetune::train {

/// Ranks whose neighbours on a node, `tp` each, share every matrix, and that otherwise have a shard
/// each: the fewer ranks are between those that share shards, the less is gathered for each token.
/// Collective on `world`. Throws: ErrorKind::command_line if a node's ranks are no multiple of
/// `tp`.
shard::Groups sharing_groups(const comm::Communicator& world, const comm::Communicator& node,
                             std::int64_t tp);

class LoadedModel {
 public:
  /// Reads config.json and this rank's shards of the weights, which may be in 4 bits; on top of
  /// them the PEFT adapter in the folder `adapter`, if it names one. Collective on `fsdp`. Throws:
  /// ErrorKind::input, also for an adapter of another model (require_adapter_base). A rank that is
  /// alone computes on its first GPU, if `gpus` lets it (comm::gpus_to_use).
  LoadedModel(const std::filesystem::path& folder, const Registry& registry,
              const comm::Communicator& fsdp, core::DType compute_dtype,
              const std::filesystem::path& adapter = {},
              comm::UseOfGpus gpus = comm::UseOfGpus::automatic);
  /// The same over any groups, whose ranks of tp share every matrix. Collective on them. Throws:
  /// ErrorKind::command_line for a model that so many ranks of tp cannot share.
  LoadedModel(const std::filesystem::path& folder, const Registry& registry,
              const shard::Groups& groups, const shard::Options& options,
              const std::filesystem::path& adapter = {});

  Engine engine() { return {architecture_, *model_, *ops_, *shards_}; }
  const model::Architecture& architecture() const { return architecture_; }
  const model::ParameterTable& parameters() const { return parameters_; }

 private:
  kernels::GpuKernels gpu_kernels_;
  model::Architecture architecture_;
  model::ParameterTable parameters_;
  model::ParameterTable own_;  ///< this rank's part of them
  std::unique_ptr<plan::ShardMap> map_;
  model::ModelPtr model_;
  std::unique_ptr<shard::ModelShards> shards_;
  std::unique_ptr<model::Ops> ops_;
};

}  // namespace finetune::train
