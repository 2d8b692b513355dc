#pragma once
// SPDX-License-Identifier: Apache-2.0
// Bytes of an update that needs matrices whole.

#include <cstdint>

#include "model/parameter_table.hpp"
#include "plan/layout/shard_map.hpp"
#include "plan/optimizer.hpp"

namespace finetune::plan {

/// What a rank holds at once while a unit is updated: its shard of the directions and of what
/// becomes of them, both whole, and what a matrix is made orthogonal with (three of its size, and
/// two squares of its shorter side). 0 for an optimizer that needs no matrices.
std::int64_t whole_matrices_bytes(const OptimizerFootprint& optimizer,
                                  const model::ParameterTable& table, const ShardMap& shards);

}  // namespace finetune::plan
