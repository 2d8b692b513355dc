// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/first_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/adapter_base.hpp"
#include "base/base_hash.hpp"
#include "base/fp8_files.hpp"
#include "base/initial_weights.hpp"
#include "base/mxfp4_files.hpp"
#include "base/packed_files.hpp"
#include "base/peft_weights.hpp"
#include "base/starts.hpp"
#include "comm/activity.hpp"
#include "comm/agree.hpp"
#include "comm/watch/hang.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "model/packing.hpp"
#include "weights/model_files.hpp"
#include "weights/peft.hpp"

namespace finetune::train {
namespace {

/// How the files have what is trained, where that is in few bits; else nothing.
std::string few_bits_of(const weights::ModelFiles& files, const model::Parameter& row) {
  if (!row.trainable) return "";
  if (!row.of_files.is_dense()) return model::packing_name(row.of_files);
  return base::is_fp8_in(files, row) ? "FP8" : base::is_mxfp4_in(files, row) ? "MXFP4" : "";
}

/// How an export writes what is trained of the model in `files`. Logs where they come from.
checkpoint::Texts dtypes_in(const weights::ModelFiles& files, const FirstWeights& weights) {
  checkpoint::Texts dtypes;
  std::map<std::string, int> unpacked;
  for (const model::Parameter& row : weights.parameters.rows) {
    const std::string few_bits = few_bits_of(files, row);
    if (!few_bits.empty()) ++unpacked[few_bits];
    if (row.trainable && row.adapts < 0)
      dtypes[row.name] =
          core::name(row.is_new || !few_bits.empty() ? weights.architecture.file_dtype
                                                     : files.entry(row.name).dtype);
  }
  log::info(fmt::format("starts from {} ({})", weights.model_folder.string(),
                        core::human_bytes(files.size_bytes())));
  for (const auto& [kind, num] : unpacked)
    log::info(fmt::format("unpacked {} tensors of {}, which are trained", num, kind));
  return dtypes;
}

/// Calls `load(source)` on every rank with what the deck names. Returns what dtypes_in does; of
/// random weights nothing.
template <typename Load>
checkpoint::Texts with_source(const FirstWeights& weights, const comm::Communicator& world,
                              const Load& load_from) {
  const comm::Activity::Work work(world.activity(), comm::reading_files, "the model");
  std::optional<weights::PeftAdapter> adapter;
  if (!weights.adapter_folder.empty())
    adapter =
        weights::PeftAdapter::open(world, weights.adapter_folder, std::span(weights.adapter, 1));
  const auto load = [&](base::WeightSource source) {
    if (!adapter) return load_from(source);
    load_from(base::with_peft(std::move(source), *adapter, weights.parameters));
  };
  if (adapter) comm::agree_all(world, [&] { adapter->require_fits(weights.parameters); });
  const base::WeightSource random =
      base::random_source(weights.architecture, weights.parameters, weights.seed);
  if (weights.init == InitialWeights::random) {
    comm::agree_all(world, [&] { load(random); });
    return {};
  }
  const weights::ModelFiles files = weights::ModelFiles::open(world, weights.model_folder);
  // Before anything that communicates: one rank may see other files than the rest.
  comm::agree_all(world, [&] {
    base::require_same_model(files, weights.architecture, weights.parameters);
    base::require_zero_biases(files, weights.parameters);
  });
  comm::agree_all(world, [&] {
    load(base::with_adapter(base::files_source(files, weights.parameters), random,
                            weights.parameters));
  });
  return dtypes_in(files, weights);
}

}  // namespace

bool FirstWeights::has_base() const {
  return !std::ranges::all_of(parameters.rows, &model::Parameter::trainable);
}

FirstWeights first_weights(const Input& input) {
  return {.init = input.model.init,
          .seed = static_cast<std::uint64_t>(input.train.seed),
          .model_folder = input.model_folder,
          .adapter_folder = input.adapter_folder,
          .adapter = input.adapter.kind,
          .architecture = input.architecture,
          .parameters = input.parameters};
}

checkpoint::Texts load_first_weights(const FirstWeights& weights, const world::World& world,
                                     shard::ModelShards& shards) {
  checkpoint::Texts dtypes =
      with_source(weights, world.world, [&](const base::WeightSource& source) {
        base::load_weights(source, shards);
        if (!weights.adapter_folder.empty()) return;
        base::set_magnitudes(shards);
        base::set_starts(weights.seed, shards);
      });
  if (!weights.adapter_folder.empty())
    log::info(fmt::format("continues from the adapter {}", weights.adapter_folder.string()));
  if (weights.init == InitialWeights::random) {
    for (const model::Parameter& row : weights.parameters.rows)
      if (row.trainable && row.adapts < 0)
        dtypes[row.name] = core::name(weights.architecture.file_dtype);
    log::info(fmt::format("starts from random weights (seed {})", weights.seed));
  }
  return dtypes;
}

void load_frozen_weights(const FirstWeights& weights, const world::World& world,
                         shard::ModelShards& shards) {
  with_source(weights, world.world,
              [&](const base::WeightSource& source) { base::load_frozen(source, shards); });
}

std::string agreed_base_hash(const FirstWeights& weights, const world::World& world,
                             const shard::ModelShards& shards) {
  std::string hash = base::frozen_hash(shards);
  const auto hashes = world.world.all_gather_text(hash);
  const auto other = std::ranges::find_if(hashes, [&](const auto& h) { return h != hashes[0]; });
  if (other == hashes.end()) return hash;
  throw comm::AgreedError(core::ErrorKind::input,
                          core::to_string({weights.model_folder.string(),
                                           fmt::format("rank {} read other weights than rank 0",
                                                       other - hashes.begin()),
                                           "all copies of the frozen weights must be the same",
                                           "Check that all nodes see the same files."}));
}

void require_base_of_adapter(const FirstWeights& weights, core::DType compute,
                             const world::World& world, const shard::ModelShards& shards) {
  if (weights.adapter_folder.empty()) return;
  base::require_adapter_base(
      world.world, weights.adapter_folder,
      {.folder = weights.model_folder,
       .table = weights.parameters,
       .compute = compute,
       .hash = [&](core::DType dtype) { return base::frozen_hash(shards, dtype); }});
}

}  // namespace finetune::train
