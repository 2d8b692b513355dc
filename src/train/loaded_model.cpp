// SPDX-License-Identifier: Apache-2.0
#include "train/loaded_model.hpp"

#include "train/initial_weights.hpp"

namespace finetune::train {

namespace {

shard::Options computing_in(core::DType dtype) {
  shard::Options options;
  options.numbers.compute = dtype;
  return options;
}

}  // namespace

LoadedModel::LoadedModel(const std::filesystem::path& folder, const Registry& registry,
                         const comm::Communicator& fsdp, core::DType compute_dtype)
    : LoadedModel(folder, registry, shard::one_copy(fsdp), computing_in(compute_dtype)) {}

LoadedModel::LoadedModel(const std::filesystem::path& folder, const Registry& registry,
                         const shard::Groups& groups, const shard::Options& options) {
  const auto identified = model::identify(model::read_config(folder),
                                          (folder / "config.json").string(), registry.families);
  architecture_ = identified.architecture;
  parameters_ = identified.family->describe(architecture_);
  map_ = std::make_unique<plan::ShardMap>(parameters_, groups.fsdp->size());
  model_ = identified.family->build(architecture_);
  shards_ = std::make_unique<shard::ModelShards>(parameters_, *map_, groups, options);
  ops_ = std::make_unique<model::Ops>(*shards_);
  import_weights(weights::ModelFiles::open(groups.fsdp->communicator(), folder), architecture_,
                 parameters_, *shards_);
}

}  // namespace finetune::train
