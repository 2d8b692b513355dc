#pragma once
// SPDX-License-Identifier: Apache-2.0
// The weights that a run begins with: from files, from an adapter's folder, or random ones.

#include <cstdint>
#include <filesystem>
#include <string>

#include "checkpoint/run_state.hpp"
#include "core/dtype.hpp"
#include "model/adapter.hpp"
#include "model/architecture.hpp"
#include "model/parameter_table.hpp"
#include "shard/model_shards.hpp"
#include "train/input/input.hpp"
#include "world/world.hpp"

namespace finetune::train {

/// Where the first weights of a run come from.
struct FirstWeights {
  InitialWeights init = InitialWeights::pretrained;
  std::uint64_t seed = 0;  ///< of random ones
  std::filesystem::path model_folder;
  std::filesystem::path adapter_folder;  ///< empty: a new adapter, or none
  const model::Adapter* adapter = nullptr;
  const model::Architecture& architecture;
  const model::ParameterTable& parameters;

  /// Whether something is frozen, which no checkpoint holds.
  bool has_base() const;
};
/// Refers to `input`.
FirstWeights first_weights(const Input& input);

/// All weights, as the deck names them, into `shards`. Returns how an export writes each trained
/// tensor. Collective on the world. Throws: comm::AgreedError.
checkpoint::Texts load_first_weights(const FirstWeights& weights, const world::World& world,
                                     shard::ModelShards& shards);

/// What a checkpoint does not hold. Collective on the world. Throws: comm::AgreedError.
void load_frozen_weights(const FirstWeights& weights, const world::World& world,
                         shard::ModelShards& shards);

/// A hash of what is frozen, which all ranks have found the same; empty where nothing is.
/// Collective on the world. Throws: comm::AgreedError of ErrorKind::input naming a rank that read
/// other weights.
std::string agreed_base_hash(const FirstWeights& weights, const world::World& world,
                             const shard::ModelShards& shards);

/// An adapter that training goes on with belongs to the loaded base. Collective on the world.
/// Throws: comm::AgreedError of ErrorKind::input.
void require_base_of_adapter(const FirstWeights& weights, core::DType compute,
                             const world::World& world, const shard::ModelShards& shards);

}  // namespace finetune::train
