// SPDX-License-Identifier: Apache-2.0
#include "train/infer/loaded_model.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "base/adapter_base.hpp"
#include "base/base_hash.hpp"
#include "base/initial_weights.hpp"
#include "base/packed_files.hpp"
#include "base/peft_weights.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "model/device.hpp"
#include "model/part.hpp"
#include "model/products.hpp"
#include "plan/layout/bucket.hpp"
#include "shard/parallel_ops.hpp"
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

void require_parts(const model::ParameterTable& table, std::int64_t tp) {
  const std::string why = model::why_not(table, tp);
  if (!why.empty())
    core::fail(core::ErrorKind::command_line,
               {"--tp", fmt::format("{} ranks cannot share the matrices of this model", tp), why,
                "Choose a smaller number."});
}

}  // namespace

shard::Groups sharing_groups(const comm::Communicator& world, const comm::Communicator& node,
                             std::int64_t tp) {
  comm::agree_all(world, [&] {
    if (node.size() % tp != 0)
      core::fail(
          core::ErrorKind::command_line,
          {"--tp", fmt::format("a node has {} ranks, no multiple of {}", node.size(), tp),
           "that many ranks of a node share every matrix", "Choose a number that divides it."});
  });
  if (tp == 1) return shard::one_copy(world);
  const auto size = static_cast<int>(tp);
  const comm::Communicator sharing = node.split(node.rank() / size, node.rank(), "tp");
  return shard::one_copy(world.split(node.rank() % size, world.rank(), "fsdp"), sharing);
}

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
  if (described.architecture.outputs.are_of_texts())
    throw comm::AgreedError(
        core::ErrorKind::input,
        core::to_string(
            {folder.string(),
             "is a model for " + model::problem_type(described.architecture.outputs.kind),
             "it continues no text",
             "Load it by transformers' AutoModelForSequenceClassification."}));
  std::optional<weights::PeftAdapter> adapter;
  if (!adapter_folder.empty()) {
    adapter = weights::PeftAdapter::open(fsdp, adapter_folder, registry.adapters);
    comm::agree_all(fsdp, [&] { add_adapter(*adapter, registry, described.parameters); });
  }
  architecture_ = described.architecture;
  parameters_ = plan::regroup(std::move(described.parameters), plan::Bucket::block);
  const model::PartPlace place = groups.part_place();
  comm::agree_all(fsdp, [&] { require_parts(parameters_, place.tp); });
  own_ = model::part_of(parameters_, place);
  map_ = std::make_unique<plan::ShardMap>(own_, groups.fsdp->size(),
                                          plan::ShardRules{.compute = options.numbers.compute});
  model_ = described.family->build(architecture_);
  shards_ = std::make_unique<shard::ModelShards>(own_, *map_, groups, options);
  // Where processors differ, all do as the oldest: ranks that disagree would follow other tokens.
  const bool is_old = model::path_for(options.numbers.compute) == model::Path::widened;
  const bool widens = fsdp.all_reduce(std::int64_t{is_old}, comm::Reduce::sum) > 0;
  ops_ = shard::make_ops(*shards_, model::path_of(widens), model::Recompute::nothing);
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
