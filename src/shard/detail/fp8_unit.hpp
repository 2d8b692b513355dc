#pragma once
// SPDX-License-Identifier: Apache-2.0
// A trained unit that is gathered in 8 bits: what its shards agree on once a step, before they
// round their values.

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "comm/group.hpp"
#include "model/fp8_products.hpp"
#include "model/parameter_table.hpp"
#include "plan/layout/fp8_layout.hpp"

namespace finetune::shard {

/// Where in the messages of all shards each scale and each other element is found.
struct Fp8Index {
  at::Tensor scales;  ///< int32 [sharers * num_scales], by sharer
  at::Tensor others;  ///< int32 [num_others]
};

/// Of units with one layout it is the same.
std::shared_ptr<const Fp8Index> make_fp8_index(const plan::Fp8Layout& layout, at::Device device);

/// Scales of whole matrices, and rows that are not in 8 bits, on every rank.
class Fp8Unit {
 public:
  /// `compute`: the dtype of rows that are not in 8 bits, and from which matrices are rounded.
  Fp8Unit(const model::ParameterTable& table, const plan::ShardMap& shards, int unit,
          std::shared_ptr<const plan::Fp8Layout> layout, std::shared_ptr<const Fp8Index> index,
          core::DType compute, at::Device device);

  /// Writes this rank's values. `master` [shard_size], of any dtype and device; `published` u8
  /// [shard_size]. `group`: those that have the unit's shards; null: this rank has all of it.
  /// Collective on `group`.
  void publish(const at::Tensor& master, at::Tensor published, comm::Group* group);

  /// Whether rows are in 8 bits, and as one matrix: what was gathered of them, u8 [padded_count].
  bool has(model::RowRange rows) const { return !table_.row(rows.first).published.is_dense(); }
  model::Quantised matrix(const at::Tensor& full, model::RowRange rows) const;
  /// Neighbouring rows that are not. -> [their elements].
  at::Tensor others(model::RowRange rows) const;

 private:
  void exchange(comm::Group& group);
  std::int64_t place_of(int row) const;
  std::int64_t outputs_of(model::RowRange rows) const;
  at::Tensor scales_of(model::RowRange rows) const;

  const model::ParameterTable& table_;
  const plan::ShardMap& shards_;
  int unit_;
  std::shared_ptr<const plan::Fp8Layout> layout_;
  std::shared_ptr<const Fp8Index> index_;
  core::DType compute_;
  at::Tensor scales_;  ///< fp32 [num_scales]; largest magnitudes while they are exchanged
  at::Tensor others_;  ///< [num_others]
};

}  // namespace finetune::shard
