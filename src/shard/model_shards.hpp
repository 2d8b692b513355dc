#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model's weights and gradients, split over the fsdp ranks and gathered unit by unit.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "comm/communicator.hpp"
#include "model/weights.hpp"
#include "plan/shard_map.hpp"
#include "shard/buffer_pool.hpp"

namespace finetune::shard {

/// Per unit: a shard of fp32 master weights and of fp32 gradient sums that stay, and flat buffers
/// of the whole unit in the computation's dtype that exist only while the unit is open. Source:
/// Zhao et al. 2023, PyTorch FSDP (arXiv 2304.11277).
class ModelShards : public model::Weights {
 public:
  ModelShards(const model::ParameterTable& table, const plan::ShardMap& map,
              const comm::Communicator& fsdp, at::ScalarType compute_dtype);

  int num_units() const { return static_cast<int>(units_.size()); }
  int unit_of(int row) const { return map_.unit_of(row); }
  const plan::ShardMap& map() const { return map_; }
  const comm::Communicator& fsdp() const { return fsdp_; }
  at::ScalarType compute_dtype() const { return compute_dtype_; }

  /// This rank's fp32 elements of a unit, [shard_size]; padding last. After writing to it:
  /// `publish`.
  at::Tensor master(int unit) const { return at(unit).master; }
  /// The sum of gradients reduced so far, fp32 [shard_size].
  at::Tensor gradient_sum(int unit) const { return at(unit).gradient_sum; }
  /// Master weights in the computation's dtype, [shard_size]: what is gathered. The optimizer may
  /// write it in the same pass that updates the master weights.
  at::Tensor published(int unit) const { return at(unit).published; }

  /// Casts the master shard to the computation's dtype, from which units are gathered.
  void publish(int unit);
  void publish_all();

  /// Gathers a unit's weights. Nested calls count. Collective on `fsdp`.
  void open(int unit);
  void close(int unit);

  /// Makes the unit's gradient buffer ready for `gradient`. Nested calls do nothing.
  void open_gradient(int unit);
  /// Sums the unit's gradients over the ranks into `gradient_sum` and gives the buffer back.
  /// Collective on `fsdp`.
  void reduce_gradient(int unit);

  /// Forgets the gradients of the last step.
  void reset_gradients();

  at::Tensor weight(model::RowRange rows) const override;
  model::GradientSlot gradient(model::RowRange rows) override;

 private:
  struct Unit {
    at::Tensor master;
    at::Tensor published;  ///< is `master` in fp32
    at::Tensor gradient_sum;
    bool has_sum = false;  ///< gradient_sum holds something of this step
    at::Tensor full;       ///< defined while open; is `published` on one rank
    int num_open = 0;
    at::Tensor full_gradient;  ///< defined while open; is `gradient_sum` on one rank in fp32
    bool gradient_is_open = false;
  };

  Unit& at(int unit) { return units_[static_cast<std::size_t>(unit)]; }
  const Unit& at(int unit) const { return units_[static_cast<std::size_t>(unit)]; }
  bool is_alone() const { return fsdp_.size() == 1; }
  bool sums_in_place() const { return is_alone() && compute_dtype_ == at::kFloat; }
  at::Tensor view(const at::Tensor& flat, model::RowRange rows) const;
  void zero_unwritten(int unit);
  void add_to_sum(Unit& unit, const at::Tensor& gradient_shard);

  const model::ParameterTable& table_;
  const plan::ShardMap& map_;
  comm::Communicator fsdp_;
  at::ScalarType compute_dtype_;
  std::vector<Unit> units_;
  std::vector<char> written_;  ///< by row: its part of the open gradient buffer holds something
  BufferPool compute_pool_;
  BufferPool float_pool_;
};

}  // namespace finetune::shard
