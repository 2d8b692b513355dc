#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where a run's first weights come from.

#include <cstdint>

#include "core/tensor_slice.hpp"
#include "model/architecture.hpp"
#include "model/parameter_table.hpp"
#include "plan/shard_map.hpp"
#include "shard/model_shards.hpp"
#include "weights/model_files.hpp"

namespace finetune::train {

/// A shard's run of a parameter, named as files name it; fp32.
core::TensorSlice tensor_slice(const model::Parameter& parameter, const plan::ShardSlice& slice);

/// Fills the shards from a Hugging Face folder and publishes them: this rank reads the bytes of its
/// shards and nothing else. Not collective.
/// Throws: ErrorKind::input, also if the files hold another model than config.json describes.
void import_weights(const weights::ModelFiles& files, const model::Architecture& architecture,
                    const model::ParameterTable& table, shard::ModelShards& shards);

/// Fills the shards with random numbers and publishes them. A weight depends on the seed and on its
/// place in its tensor alone, never on the rank.
void randomize(const model::Architecture& architecture, const model::ParameterTable& table,
               std::uint64_t seed, shard::ModelShards& shards);

}  // namespace finetune::train
