// SPDX-License-Identifier: Apache-2.0
#include "train/loaded_model.hpp"

#include "train/initial_weights.hpp"

namespace finetune::train {

LoadedModel::LoadedModel(const std::filesystem::path& folder, const Registry& registry,
                         const comm::Communicator& fsdp, core::DType compute_dtype) {
  const auto identified = model::identify(model::read_config(folder),
                                          (folder / "config.json").string(), registry.families);
  architecture_ = identified.architecture;
  parameters_ = identified.family->describe(architecture_);
  map_ = std::make_unique<plan::ShardMap>(parameters_, fsdp.size());
  model_ = identified.family->build(architecture_);
  shard::Options options;
  options.numbers.compute = compute_dtype;
  shards_ =
      std::make_unique<shard::ModelShards>(parameters_, *map_, shard::one_copy(fsdp), options);
  ops_ = std::make_unique<model::Ops>(*shards_);
  import_weights(weights::ModelFiles::open(fsdp, folder), architecture_, parameters_, *shards_);
}

}  // namespace finetune::train
