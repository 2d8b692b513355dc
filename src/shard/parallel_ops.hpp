#pragma once
// SPDX-License-Identifier: Apache-2.0
// The ops of a rank, whatever it shares with others.

#include <memory>

#include "model/ops.hpp"
#include "model/path.hpp"
#include "shard/model_shards.hpp"

namespace finetune::shard {

/// Ops on this rank's part of the model, which communicate over those of the shards' groups that
/// have ranks: tp, cp, ep. `shards` outlives them.
std::unique_ptr<model::Ops> make_ops(ModelShards& shards, model::Path path,
                                     model::Recompute recompute);

}  // namespace finetune::shard
