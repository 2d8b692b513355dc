#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model folder loaded without optimizer, by one process or shared by several: for generation,
// evaluation and tests.

#include <cstdint>
#include <filesystem>
#include <memory>

#include "comm/communicator.hpp"
#include "comm/device.hpp"
#include "kernels/gpu_kernels.hpp"
#include "plan/layout/shard_map.hpp"
#include "shard/options.hpp"
#include "train/input/registry.hpp"
#include "train/step/passes.hpp"
#include "weights/peft.hpp"

namespace finetune::train {

/// Ranks whose neighbours on a node, `tp` each, share every matrix, and that otherwise have a shard
/// each: the fewer ranks are between those that share shards, the less is gathered for each token.
/// Collective on `world`. Throws: ErrorKind::command_line if a node's ranks are no multiple of
/// `tp`.
shard::Groups sharing_groups(const comm::Communicator& world, const comm::Communicator& node,
                             std::int64_t tp);

/// What a rank computes with that only reads a model: in `dtype`, and where it is alone on its
/// first GPU, if `gpus` lets it (comm::gpus_to_use); ranks that share a model have no groups but
/// the host's.
shard::Options inference_options(core::DType dtype, const comm::Communicator& fsdp,
                                 comm::UseOfGpus gpus);

/// Throws: ErrorKind::input for a model of which the head is for labels of texts or for numbers.
void require_continues_text(const model::Architecture& architecture,
                            const std::filesystem::path& folder);

/// Whether all weights are kept in the dtype that is computed in (or in 4 bits), to be read; or
/// those that are not frozen also in fp32, with room for gradients.
enum class WeightUse { read, trained };

class LoadedModel {
 public:
  /// Reads config.json and this rank's shards of the weights, which may be in 4 bits; on top of
  /// them the PEFT adapter in the folder `adapter`, if it names one. Collective on `fsdp`. Throws:
  /// ErrorKind::input, also for an adapter of another model (require_adapter_base).
  LoadedModel(const std::filesystem::path& folder, const Registry& registry,
              const comm::Communicator& fsdp, core::DType compute_dtype,
              const std::filesystem::path& adapter = {});
  /// The same over any groups, whose ranks of tp share every matrix. Collective on them. Throws:
  /// ErrorKind::command_line for a model that so many ranks of tp cannot share. `registry` lives as
  /// long as this.
  LoadedModel(const std::filesystem::path& folder, const Registry& registry,
              const shard::Groups& groups, const shard::Options& options, WeightUse use,
              const std::filesystem::path& adapter = {});

  /// Another adapter, or with an empty path none, on top of the same weights: they are read again
  /// only where the adapters differ in what they freeze (modules that are trained in full).
  /// Engines of before are of no use after. Collective on the groups. Throws: ErrorKind::input for
  /// an adapter that cannot be used; then all is as before, unless is_usable says otherwise.
  void use_adapter(const std::filesystem::path& adapter);

  /// Whether it has weights: not after an error while they were read again.
  bool is_usable() const { return held_ != nullptr; }
  Engine engine() { return {architecture_, *model_, *held_->ops, *held_->shards}; }
  const model::Architecture& architecture() const { return architecture_; }
  const model::ParameterTable& parameters() const { return held_->parameters; }

 private:
  /// What depends on the adapter.
  struct Held {
    model::ParameterTable parameters;
    model::ParameterTable own;  ///< this rank's part of them
    std::unique_ptr<plan::ShardMap> map;
    std::unique_ptr<shard::ModelShards> shards;
    std::unique_ptr<model::Ops> ops;
  };
  std::unique_ptr<Held> laid_out(const weights::PeftAdapter* adapter) const;
  /// The model's files, which are those of `held`.
  weights::ModelFiles opened(const Held& held) const;
  /// `files`: null where the frozen weights are there already.
  void load(const weights::PeftAdapter* adapter, const weights::ModelFiles* files,
            Held& held) const;
  void require_base(const weights::PeftAdapter& adapter, const Held& held,
                    const shard::ModelShards& shards) const;
  const comm::Communicator& fsdp() const { return groups_.fsdp->communicator(); }

  std::filesystem::path folder_;
  const Registry* registry_;
  shard::Groups groups_;
  shard::Options options_;
  WeightUse use_;
  kernels::GpuKernels gpu_kernels_;
  model::Architecture architecture_;
  model::ParameterTable base_;  ///< without an adapter
  model::ModelPtr model_;
  std::unique_ptr<Held> held_;
};

}  // namespace finetune::train
