#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where a run's first weights come from.

#include <cstdint>

#include "base/detail/frozen_weights.hpp"
#include "core/tensor_slice.hpp"
#include "model/architecture.hpp"
#include "model/parameter_table.hpp"
#include "plan/layout/shard_map.hpp"
#include "shard/model_shards.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// A shard's run of a parameter, named as files name it; fp32.
core::TensorSlice tensor_slice(const model::Parameter& parameter, const plan::ShardSlice& slice);

/// The weights of a Hugging Face folder, which lives as long as the source. Each rank reads the
/// bytes of its shards and nothing else.
WeightSource files_source(const weights::ModelFiles& files, const model::ParameterTable& table);

/// Random numbers, as each row's Init says. A weight depends on the seed, on its row and on its
/// place in its tensor alone, never on the rank, the piece that is asked for or the threads, which
/// share it.
WeightSource random_source(const model::Architecture& architecture,
                           const model::ParameterTable& table, std::uint64_t seed);

/// The first for the model's own rows, the second for those of adapters.
WeightSource with_adapter(WeightSource base, WeightSource adapter,
                          const model::ParameterTable& table);

/// Fills the shards and publishes them. With frozen units collective on fsdp, otherwise not.
/// Throws: what the source throws; see load_frozen.
void load_weights(const WeightSource& source, shard::ModelShards& shards);

/// The same of the shards of trained units alone: those of frozen ones are there.
void load_trained(const WeightSource& source, shard::ModelShards& shards);

/// Sets new adapters' magnitudes to the norms of the rows that they scale (Init::row_norms).
/// Collective on fsdp.
void set_magnitudes(shard::ModelShards& shards);

/// Compares names and shapes, of which headers are enough. Throws: ErrorKind::input if the files
/// hold other tensors than config.json describes.
void require_same_tensors(const weights::ModelFiles& files, const model::Architecture& architecture,
                          const model::ParameterTable& table);

/// Throws: ErrorKind::input if the files hold another model than config.json describes, or codes
/// that mean something else than here, or a head that differs from the embedding it is said to be.
void require_same_model(const weights::ModelFiles& files, const model::Architecture& architecture,
                        const model::ParameterTable& table);

/// Fills the shards from a Hugging Face folder and publishes them. As load_weights.
/// Throws: ErrorKind::input, also if the files hold another model than config.json describes.
void import_weights(const weights::ModelFiles& files, const model::Architecture& architecture,
                    const model::ParameterTable& table, shard::ModelShards& shards);

/// Fills the shards with random numbers and publishes them. As load_weights.
void randomize(const model::Architecture& architecture, const model::ParameterTable& table,
               std::uint64_t seed, shard::ModelShards& shards);

}  // namespace finetune::base
