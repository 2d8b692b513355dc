#pragma once
// SPDX-License-Identifier: Apache-2.0
// The norms of a model's trained weights and of their gradients, layer by layer.

#include <optional>
#include <vector>

#include "kernels/exact_squares.hpp"
#include "shard/host_copy.hpp"
#include "shard/model_shards.hpp"

namespace finetune::optim {

/// Euclidean, of all that is trained in a stage of the forward pass.
struct LayerNorm {
  int stage = 0;  ///< the embedding 0, block i 1 + i, the head last
  double weight = 0;
  double gradient = 0;
};

/// Of the master weights and the gradients of a step that is to come, which `shards` hold. Sums are
/// exact: they are the same however the elements are split. NaN as in GradientNorm.
class LayerNormSums {
 public:
  /// On a GPU starts to add up; the gradients may still be computed.
  explicit LayerNormSums(shard::ModelShards& shards);

  /// In the order of the stages, without those in which nothing is trained. Waits for the GPU if
  /// nobody has. Collective on the shards' fsdp and tp.
  std::vector<LayerNorm> wait();

 private:
  void add(const at::Tensor& values, std::size_t index);

  shard::ModelShards& shards_;
  std::vector<char> is_trained_;                ///< by stage
  std::vector<kernels::ExactSquares> by_host_;  ///< weight and gradient of each stage
  at::Tensor bins_;  ///< on the device, int64 [2 * stages, SquareBins::num_values]
  std::optional<shard::HostCopy> by_device_;
};

}  // namespace finetune::optim
