#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which parameters of a unit are matrices that an update needs whole, and who computes it.

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "shard/model_shards.hpp"

namespace finetune::optimizers::muon {

/// Matrices of blocks, those of adapters too. Embeddings, heads, norms and biases are none.
bool is_matrix(const model::ParameterTable& table, int row);

/// Of a unit's flat buffer; an expert's is one of its own.
struct Matrix {
  int row = 0;
  std::int64_t first = 0;  ///< element
  std::int64_t height = 0, width = 0;
  int owner = 0;  ///< among the ranks that share the unit
};

/// In the order of the buffer. Owners have about equal work, height * width * min(height, width),
/// and are the same on every rank.
std::vector<Matrix> matrices_of(const shard::ModelShards& shards, int unit);

/// What `f` makes of each matrix [height, width] of a unit: `shard` fp32 [shard_size] is this
/// rank's part of them, and so is the result, whose other elements are 0. Each matrix is computed
/// once, by its owner, from the same numbers on any number of ranks: gathered, computed, and
/// scattered as sums with zeros. Collective on the ranks that share the unit.
at::Tensor for_whole_matrices(const shard::ModelShards& shards, int unit,
                              const std::vector<Matrix>& matrices, const at::Tensor& shard,
                              const std::function<at::Tensor(const at::Tensor&)>& f);

}  // namespace finetune::optimizers::muon
