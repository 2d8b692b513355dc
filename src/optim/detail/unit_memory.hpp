#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where an update finds a unit's gradient and leaves its new weights, offloaded or not.

#include <ATen/ATen.h>

#include <deque>

#include "shard/host_copy.hpp"
#include "shard/model_shards.hpp"

namespace finetune::optim {

/// For one step; called as schedule::make_update says. Offloaded, gradients and new weights travel
/// by memory of the host while other units are updated.
class UnitMemory {
 public:
  /// `by_kernels`: what is updated on the host is cast in the same pass.
  UnitMemory(shard::ModelShards& shards, bool by_kernels);

  void fetch(int unit);
  /// fp32 [shard_size] where the master weights are, arrived.
  at::Tensor gradient(int unit);
  /// What a kernel writes the new weights to in the computation's dtype; undefined if there is no
  /// kernel, or no other dtype.
  at::Tensor copy(int unit);
  /// The weights in `copy`, if it was defined, or the master weights.
  void publish(int unit);

 private:
  bool is_cast_by_kernel(int unit) const;

  shard::ModelShards& shards_;
  bool by_kernels_;
  std::deque<shard::HostCopy> gradients_;  ///< fetched, in their order
  std::deque<shard::HostCopy> copies_;     ///< published last, and the one to be published next
};

}  // namespace finetune::optim
