#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model's weights and gradients, split over the fsdp ranks and gathered unit by unit.

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/weights.hpp"
#include "plan/layout/shard_map.hpp"
#include "shard/detail/buffer_pool.hpp"
#include "shard/detail/fp8_unit.hpp"
#include "shard/detail/gradients.hpp"
#include "shard/detail/remembered.hpp"
#include "shard/detail/shared_rows.hpp"
#include "shard/host_copy.hpp"
#include "shard/options.hpp"

namespace finetune::shard {

/// Per unit that is trained: a shard of master weights and of gradient sums that stay, and flat
/// buffers of the whole unit in the computation's dtype that exist from `gather` to `release`. Of a
/// frozen unit: a shard of its bytes, packed or in the computation's dtype, which are gathered as
/// they are. Gathers and reductions run behind the computation; every rank gathers
/// and reduces the same units in the same order. Where ranks share experts out, "fsdp" below is for
/// the units of experts those with the same experts (expert_fsdp). Source: Zhao et al. 2023,
/// PyTorch FSDP (arXiv 2304.11277).
class ModelShards : public model::Weights {
 public:
  /// `table` is of what the ranks of fsdp share: the model's, or this rank's part of it. Shards of
  /// frozen units are those of `frozen_of`, if there is one, which has the same frozen units
  /// (has_same_frozen) over the same groups: both may read them from then on.
  ModelShards(const model::ParameterTable& table, const plan::ShardMap& map, const Groups& groups,
              const Options& options, const ModelShards* frozen_of = nullptr);
  ~ModelShards() override;

  int num_units() const { return static_cast<int>(units_.size()); }
  int unit_of(int row) const { return map_.unit_of(row); }
  bool is_trained(int unit) const { return map_.unit(unit).trainable; }
  /// Those with master weights and gradients.
  const std::vector<int>& trained_units() const { return trained_units_; }
  const plan::ShardMap& map() const { return map_; }
  const model::ParameterTable& table() const { return table_; }
  const comm::Communicator& fsdp() const { return groups_.fsdp->communicator(); }
  /// The ranks that have shards of a unit, and which of the shards is this rank's.
  const comm::Communicator& ranks_of(int unit) const { return group_of(unit).communicator(); }
  int shard_of(int unit) const { return group_of(unit).rank(); }
  const Groups& groups() const { return groups_; }
  const Options& options() const { return options_; }
  at::ScalarType compute_dtype() const { return to_aten(options_.numbers.compute); }

  /// This rank's elements of a trained unit in the master dtype, [shard_size]; padding last. After
  /// writing to it: `publish`.
  at::Tensor master(int unit) const { return at(unit).master; }
  /// What the loader of frozen units leaves for the hash of the base, of planes that no rank keeps.
  std::uint64_t& note_of_frozen() { return note_of_frozen_; }
  std::uint64_t note_of_frozen() const { return note_of_frozen_; }
  /// What is gathered, [shard_size]: master weights in the computation's dtype, which the optimizer
  /// may write in the same pass that updates them, or bytes: of a frozen unit, or of one in 8 bits.
  at::Tensor published(int unit) const { return at(unit).published; }
  /// The gradient of the step, fp32 [shard_size], after `finish_gradients`; valid until asked for
  /// the next unit's.
  at::Tensor gradient(int unit) { return gradients_.gradient(unit); }

  /// Makes of the master shard what units are gathered from. Collective on `ranks_of(unit)` for a
  /// unit in 8 bits, whose ranks agree on scales.
  void publish(int unit);
  /// The same where the host has written the cast shard: starts to copy it to `published`.
  void publish(int unit, HostCopy& written);
  /// Units are gathered from these values in the place of the master weights, fp32 [shard_size] on
  /// the device of the masters, until `publish`. They outlive that; where masters are published as
  /// they are, they are read in place, cast if masters are bf16. Collective as `publish`.
  void publish_in_place(int unit, const at::Tensor& values);
  void publish_all();

  /// Calls `f`: what it gathers and reduces belongs together (comm::Group::together).
  template <typename F>
  void together(const F& f) {
    groups_.fsdp->together(f);
  }

  /// Starts to gather a unit, if it is not there yet, for the `open` that follows. Collective on
  /// fsdp.
  void gather(int unit);
  /// Makes a unit's weights readable, gathered first if they are not; readers wait for them. Nested
  /// calls count. Collective on fsdp.
  void open(int unit);
  /// What was gathered stays until `release`.
  void close(int unit);
  /// Gives back the memory of a closed unit's gathered weights, if there is any.
  void release(int unit);
  void release_all();

  /// Makes the unit's gradient buffer ready for `gradient`. Nested calls do nothing, nor does it
  /// for a frozen unit.
  void open_gradient(int unit);
  /// Starts to sum the unit's gradients over the ranks and gives the buffer back; nothing for a
  /// frozen unit. What several ranks of tp hold is summed over them first. Collective on tp, on
  /// fsdp and, in the last pass of a step, on dp_replicate.
  void reduce_gradient(int unit, Gradients::Pass pass = Gradients::Pass::last);
  /// From now on `look` sees the gradient of each pass and unit, all of it, before it is added to
  /// the sums: [padded count] in the computation's dtype, padding 0, as far as the device is. Null:
  /// nobody does. With Numbers::keeps_passes_apart alone it is of that pass and of no other.
  using Look = std::function<void(int unit, const at::Tensor& gradient)>;
  void look_at_gradients(Look look) { look_ = std::move(look); }
  /// Returns when all sums are complete.
  void finish_gradients() { gradients_.finish(); }

  /// Returns when the sums of a unit are complete, whose gradient was reduced in the last pass.
  /// Every rank asks for the same units in the same order.
  void finish_gradient(int unit) { gradients_.finish(unit); }
  /// Gives back the memory of a unit's gradient, which nobody needs any more.
  void release_gradient(int unit) { gradients_.release(unit); }

  /// Forgets the gradients of the last step. `num_micro_batches` of the next, over all ranks.
  void reset_gradients(std::int64_t num_micro_batches = 1);

  /// What this rank's gradients had that fixed point cannot hold, in words.
  std::optional<std::string> out_of_range();

  at::Tensor weight(model::RowRange rows) const override;
  model::Weight matrix(model::RowRange rows) const override;
  model::GradientSlot gradient(model::RowRange rows) override;
  model::Weight series(const model::RowSeries& series) const override;
  bool has_series_gradient(const model::RowSeries& series) const override;
  model::GradientSlot series_gradient(const model::RowSeries& series) override;
  std::vector<model::TrainedPart> trained(model::RowRange rows) const override;
  std::vector<model::AdaptedPart> adapted(model::RowRange rows) const override;

 private:
  void require_closed(int unit) const;

  struct Unit {
    at::Tensor master;
    at::Tensor published;        ///< is `master` where the dtypes are the same
    std::optional<Fp8Unit> fp8;  ///< of what is gathered in 8 bits: all but its values
    at::Tensor full;             ///< defined while gathered; is `published` where nobody gathers
    mutable comm::Ticket gathering = comm::nothing_started;
    int num_open = 0;
    at::Tensor full_gradient;  ///< defined while open
    bool gradient_is_open = false;
  };

  Unit& at(int unit) { return units_[static_cast<std::size_t>(unit)]; }
  const Unit& at(int unit) const { return units_[static_cast<std::size_t>(unit)]; }
  comm::Group& group_of(int unit) const { return groups_.of(map_.unit(unit)); }
  /// Units are gathered from the master weights themselves.
  bool publishes_masters() const;
  bool is_alone(int unit) const { return !groups_.gathers(map_.unit(unit)); }
  /// Of neighbouring rows, one below the other.
  std::vector<std::int64_t> shape_of(model::RowRange rows) const;
  at::Tensor view(const at::Tensor& flat, model::RowRange rows) const;
  std::int64_t distance_of(const model::RowSeries& series) const;
  at::Tensor view(const at::Tensor& flat, const model::RowSeries& series,
                  std::int64_t first_element) const;
  bool is_of_one_unit(model::RowRange rows) const;
  at::Tensor joined(model::RowRange rows) const;
  model::Weight dense_or_packed(model::RowRange rows) const;
  model::Weight frozen_matrix(const at::Tensor& bytes, model::RowRange rows) const;
  /// Of rows that are all kept in 8 bits and lie as one.
  std::optional<model::Quantised> quantised_matrix(const at::Tensor& bytes,
                                                   model::RowRange rows) const;
  std::optional<model::Quantised> quantised_series(const Unit& unit,
                                                   const model::RowSeries& series) const;
  /// How the product with such rows rounds its operands, if it does.
  std::optional<model::Fp8Recipe> fp8_of(model::RowRange rows) const;
  bool is_in_bytes(int unit) const { return map_.unit(unit).is_in_bytes(); }
  BufferPool& pool_of(int unit) { return is_in_bytes(unit) ? byte_pool_ : pool_; }
  void wait_for(int unit) const;
  void zero_unwritten(int unit);

  const model::ParameterTable& table_;
  const plan::ShardMap& map_;
  Groups groups_;
  Options options_;
  std::vector<Unit> units_;
  std::vector<int> trained_units_;
  std::vector<char> written_;  ///< by row: its part of the open gradient buffer holds something
  Remembered published_;
  BufferPool pool_;
  BufferPool byte_pool_;  ///< of units that are gathered byte by byte
  Gradients gradients_;
  SharedRows shared_rows_;
  std::uint64_t note_of_frozen_ = 0;
  Look look_;
};

}  // namespace finetune::shard
