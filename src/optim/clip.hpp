#pragma once
// SPDX-License-Identifier: Apache-2.0
// The global gradient norm, over shards, and what clipping makes of it.

#include <ATen/ATen.h>

#include <optional>

#include "kernels/exact_squares.hpp"
#include "shard/host_copy.hpp"
#include "shard/model_shards.hpp"

namespace finetune::optim {

/// Euclidean norm of all gradients of the model. By kernels, on the CPU or a GPU, and everywhere if
/// gradients are summed in fixed point, it is summed exactly, so that it does not depend on how the
/// elements are split over ranks and threads; NaN if a gradient is not finite or beyond 2^38. By
/// libtorch's operations on a GPU it is summed in fp32, and in fp64 over rows of 65,536. Collective
/// on the shards' fsdp, tp and dp_replicate.
class GradientNorm {
 public:
  /// On a GPU starts to add up; the gradients may still be computed.
  explicit GradientNorm(shard::ModelShards& shards);
  /// For those that are added one by one, before their gradients go.
  enum class Units { one_by_one };
  GradientNorm(shard::ModelShards& shards, Units) : shards_(shards) {}
  /// `unit` has its whole gradient, and is asked for once.
  void add(int unit);
  /// All units were added.
  void start();

  /// Collective as above; waits for the GPU if nobody has.
  double wait();

 private:
  shard::ModelShards& shards_;
  kernels::ExactSquares by_host_;  ///< of this rank
  at::Tensor by_device_;           ///< the same on a GPU, and on its way from there
  std::optional<shard::HostCopy> squares_;
};

/// Factor that brings a norm down to `max_norm`: min(1, max_norm / (norm + 1e-6)), 1 if `max_norm`
/// is 0. Source: torch.nn.utils.clip_grad_norm_.
double clip_factor(double norm, double max_norm);

inline double gradient_norm(shard::ModelShards& shards) {
  return GradientNorm(shards).wait();
}

}  // namespace finetune::optim
