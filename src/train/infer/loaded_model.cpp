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

shard::Options inference_options(core::DType dtype, const comm::Communicator& fsdp,
                                 comm::UseOfGpus gpus) {
  shard::Options options;
  options.numbers.compute = dtype;
  if (fsdp.size() > 1) return options;
  options.device = options.state_device =
      model::compute_device(comm::choose_first_device(gpus).index);
  return options;
}

void require_continues_text(const model::Architecture& architecture,
                            const std::filesystem::path& folder) {
  if (!architecture.outputs.are_of_texts()) return;
  core::fail(core::ErrorKind::input,
             {folder.string(), "is a model for " + model::problem_type(architecture.outputs.kind),
              "it continues no text",
              "finetune generate says what it makes of texts: of one, or of --file with lines of "
              "{\"text\"}."});
}

LoadedModel::LoadedModel(const std::filesystem::path& folder, const Registry& registry,
                         const comm::Communicator& fsdp, core::DType compute_dtype,
                         const std::filesystem::path& adapter)
    : LoadedModel(folder, registry, shard::one_copy(fsdp),
                  inference_options(compute_dtype, fsdp, comm::UseOfGpus::automatic),
                  WeightUse::trained, adapter) {}

LoadedModel::LoadedModel(const std::filesystem::path& folder, const Registry& registry,
                         const shard::Groups& groups, const shard::Options& options, WeightUse use,
                         const std::filesystem::path& adapter)
    : folder_(folder),
      registry_(&registry),
      groups_(groups),
      options_(options),
      use_(use),
      gpu_kernels_(options.device.is_cpu() ? -1 : options.device.index()) {
  DescribedModel described = describe_model(fsdp(), folder, registry);
  architecture_ = described.architecture;
  base_ = std::move(described.parameters);
  if (use == WeightUse::read)
    for (model::Parameter& row : base_.rows)
      row.trainable = false;
  model_ = described.family->build(architecture_);
  use_adapter(adapter);
}

void LoadedModel::use_adapter(const std::filesystem::path& adapter_folder) {
  std::optional<weights::PeftAdapter> adapter;
  if (!adapter_folder.empty())
    adapter = weights::PeftAdapter::open(fsdp(), adapter_folder, registry_->adapters);
  const weights::PeftAdapter* chosen = adapter ? &*adapter : nullptr;
  std::unique_ptr<Held> next = laid_out(chosen);
  const bool base_is_there =
      use_ == WeightUse::read && held_ && plan::has_same_frozen(*held_->map, *next->map);
  std::optional<weights::ModelFiles> files;
  if (base_is_there) {
    if (chosen != nullptr) require_base(*chosen, *next, *held_->shards);
  } else {
    files = opened(*next);
    // Two models may not fit.
    held_.reset();
  }
  next->shards = std::make_unique<shard::ModelShards>(
      next->own, *next->map, groups_, options_, base_is_there ? held_->shards.get() : nullptr);
  try {
    load(chosen, files ? &*files : nullptr, *next);
  } catch (const comm::AgreedError&) {
    // While it unwinds, shards give up their groups, which go on being used.
    next.reset();
    throw;
  }
  held_ = std::move(next);
}

std::unique_ptr<LoadedModel::Held> LoadedModel::laid_out(
    const weights::PeftAdapter* adapter) const {
  auto held = std::make_unique<Held>();
  held->parameters = base_;
  const model::PartPlace place = groups_.part_place();
  comm::agree_all(fsdp(), [&] {
    if (adapter != nullptr) add_adapter(*adapter, *registry_, held->parameters);
    held->parameters = plan::regroup(std::move(held->parameters), plan::Bucket::block);
    require_parts(held->parameters, place.tp);
  });
  held->own = model::part_of(held->parameters, place);
  held->map = std::make_unique<plan::ShardMap>(
      held->own, groups_.fsdp->size(), plan::ShardRules{.compute = options_.numbers.compute});
  return held;
}

weights::ModelFiles LoadedModel::opened(const Held& held) const {
  auto files = weights::ModelFiles::open(fsdp(), folder_);
  comm::agree_all(fsdp(), [&] {
    base::require_same_model(files, architecture_, held.parameters);
    base::require_zero_biases(files, held.parameters);
  });
  return files;
}

void LoadedModel::load(const weights::PeftAdapter* adapter, const weights::ModelFiles* files,
                       Held& held) const {
  // Where processors differ, all do as the oldest: ranks that disagree would follow other tokens.
  const bool is_old = model::path_for(options_.numbers.compute) == model::Path::widened;
  const bool widens = fsdp().all_reduce(std::int64_t{is_old}, comm::Reduce::sum) > 0;
  held.ops = shard::make_ops(*held.shards, model::path_of(widens), model::Recompute::nothing);
  base::WeightSource source;
  if (files != nullptr) source = base::files_source(*files, held.parameters);
  if (adapter != nullptr) source = base::with_peft(std::move(source), *adapter, held.parameters);
  // All that is trained is the adapter's.
  if (files == nullptr) return base::load_trained(source, *held.shards);
  base::load_weights(source, *held.shards);
  if (adapter != nullptr) require_base(*adapter, held, *held.shards);
}

void LoadedModel::require_base(const weights::PeftAdapter& adapter, const Held& held,
                               const shard::ModelShards& shards) const {
  base::require_adapter_base(
      fsdp(), adapter.folder(),
      {.folder = folder_,
       .table = held.parameters,
       .compute = options_.numbers.compute,
       .hash = [&](core::DType dtype) { return base::frozen_hash(shards, dtype); }});
}

}  // namespace finetune::train
