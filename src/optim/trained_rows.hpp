#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tensors of which only some rows are trained (model::Parameter::trained_rows).

#include "model/parameter_table.hpp"
#include "plan/layout/shard_map.hpp"
#include "shard/model_shards.hpp"

namespace finetune::optim {

/// What of a shard's run of a row is trained: all of it, a part, or nothing (count 0).
plan::ShardSlice trained_part(const model::Parameter& row, const plan::ShardSlice& slice);

/// Sets the reduced gradients of rows that stay as they are to zero: before norms and clipping.
void forget_other_rows(shard::ModelShards& shards);
void forget_other_rows(shard::ModelShards& shards, int unit);

}  // namespace finetune::optim
