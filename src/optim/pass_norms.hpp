#pragma once
// SPDX-License-Identifier: Apache-2.0
// The norms of the gradients of a step's passes, each by itself.

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/exact_squares.hpp"
#include "shard/host_copy.hpp"
#include "shard/model_shards.hpp"

namespace finetune::optim {

/// Looks at the gradient that each pass of this rank adds to the sums, while it lives. Of a rank
/// without tp, cp and ep that is the gradient of a micro-batch, whole; `shards` keep passes apart
/// (Numbers::keeps_passes_apart). Sums are exact: the same whichever rank computed the micro-batch.
class PassSquares {
 public:
  PassSquares(shard::ModelShards& shards, std::int64_t num_passes);
  ~PassSquares() { shards_.look_at_gradients({}); }
  PassSquares(const PassSquares&) = delete;
  PassSquares& operator=(const PassSquares&) = delete;

  /// What is reduced from now on is of this pass.
  void begin(std::int64_t pass) { pass_ = static_cast<std::size_t>(pass); }
  /// Squared norms of the passes' gradients over what is trained, once all are reduced; NaN as in
  /// GradientNorm. Waits for a GPU. No communication.
  std::vector<double> wait();

 private:
  void add(int unit, const at::Tensor& gradient);
  void add(const at::Tensor& values);

  shard::ModelShards& shards_;
  std::size_t pass_ = 0;
  std::vector<kernels::ExactSquares> by_host_;  ///< of each pass
  at::Tensor bins_;  ///< on the device, int64 [passes, SquareBins::num_values]
};

}  // namespace finetune::optim
