// SPDX-License-Identifier: Apache-2.0
#include "train/infer/loaded_model.hpp"

#include <optional>
#include <utility>

#include "base/adapter_base.hpp"
#include "base/base_hash.hpp"
#include "base/initial_weights.hpp"
#include "base/packed_files.hpp"
#include "base/peft_weights.hpp"
#include "comm/agree.hpp"
#include "model/device.hpp"
#include "model/products.hpp"
#include "plan/layout/bucket.hpp"
#include "train/input/described_model.hpp"

namespace finetune::train {
namespace {

/// Alone with the model, a rank computes on its first GPU if it has any; ranks that share it have
/// no groups but the host's.
shard::Options computing_in(core::DType dtype, const comm::Communicator& fsdp,
                            comm::UseOfGpus gpus) {
  shard::Options options;
  options.numbers.compute = dtype;
  if (fsdp.size() > 1) return options;
  options.device = options.state_device =
      model::compute_device(comm::choose_first_device(gpus).index);
  return options;
}

void add_adapter(const weights::PeftAdapter& adapter, const Registry& registry,
                 model::ParameterTable& table) {
  model::AdapterSettings settings = adapter.settings();
  // The first of its type lets the weights stay as they are.
  settings.name = adapter.kind().name;
  settings.path = adapter.folder().string();
  rewrite_for(settings, (adapter.folder() / weights::peft_config_name).string(), registry, table);
  adapter.require_fits(table);
}

}  // namespace

LoadedModel::LoadedModel(const std::filesystem::path& folder, const Registry& registry,
                         const comm::Communicator& fsdp, core::DType compute_dtype,
                         const std::filesystem::path& adapter, comm::UseOfGpus gpus)
    : LoadedModel(folder, registry, shard::one_copy(fsdp), computing_in(compute_dtype, fsdp, gpus),
                  adapter) {}

LoadedModel::LoadedModel(const std::filesystem::path& folder, const Registry& registry,
                         const shard::Groups& groups, const shard::Options& options,
                         const std::filesystem::path& adapter_folder)
    : gpu_kernels_(options.device.is_cpu() ? -1 : options.device.index()) {
  const comm::Communicator& fsdp = groups.fsdp->communicator();
  DescribedModel described = describe_model(fsdp, folder, registry);
  std::optional<weights::PeftAdapter> adapter;
  if (!adapter_folder.empty()) {
    adapter = weights::PeftAdapter::open(fsdp, adapter_folder, registry.adapters);
    comm::agree_all(fsdp, [&] { add_adapter(*adapter, registry, described.parameters); });
  }
  architecture_ = described.architecture;
  parameters_ = plan::regroup(std::move(described.parameters), plan::Bucket::block);
  map_ = std::make_unique<plan::ShardMap>(parameters_, groups.fsdp->size(),
                                          plan::ShardRules{.compute = options.numbers.compute});
  model_ = described.family->build(architecture_);
  shards_ = std::make_unique<shard::ModelShards>(parameters_, *map_, groups, options);
  // Where processors differ, all do as the oldest: ranks that disagree would follow other tokens.
  const bool is_old = model::path_for(options.numbers.compute) == model::Path::widened;
  const bool widens = fsdp.all_reduce(std::int64_t{is_old}, comm::Reduce::sum) > 0;
  ops_ = std::make_unique<model::Ops>(*shards_, model::path_of(widens));
  const auto files = weights::ModelFiles::open(fsdp, folder);
  comm::agree_all(fsdp, [&] {
    base::require_same_model(files, architecture_, parameters_);
    base::require_zero_biases(files, parameters_);
  });
  base::WeightSource source = base::files_source(files, parameters_);
  if (adapter) source = base::with_peft(std::move(source), *adapter, parameters_);
  base::load_weights(source, *shards_);
  if (adapter)
    base::require_adapter_base(
        fsdp, adapter_folder,
        {.folder = folder,
         .table = parameters_,
         .compute = options.numbers.compute,
         .hash = [&](core::DType dtype) { return base::frozen_hash(*shards_, dtype); }});
}

}  // namespace finetune::train
