#pragma once
// SPDX-License-Identifier: Apache-2.0
// What travels beside the values of a trained unit that is gathered in 8 bits: the scales of its
// matrices, and its other rows.

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/layout/shard_map.hpp"

namespace finetune::plan {

/// Neighbours among a unit's scales, or among elements of its rows that are not in 8 bits.
struct Stretch {
  std::int64_t first = 0;
  std::int64_t count = 0;

  std::int64_t end() const { return first + count; }
};

/// Scales, in the order of the rows, and apart from them the elements of other rows. Each shard
/// knows the largest magnitudes in the tiles that it has something of, and its own elements of
/// other rows: these are exchanged once a step, before values are rounded, and stay on every rank.
class Fp8Layout {
 public:
  /// `unit` is of `shards`, and in 8 bits.
  Fp8Layout(const model::ParameterTable& table, const ShardMap& shards, int unit);

  std::int64_t num_scales() const { return num_scales_; }
  std::int64_t num_others() const { return num_others_; }
  /// By place in UnitLayout::rows. Of a row in 8 bits: its first scale. Of another: its first
  /// element among those.
  const std::vector<std::int64_t>& places() const { return places_; }

  /// By shard, what it has of them; neighbours may have the same scales.
  const std::vector<Stretch>& scales() const { return scales_; }
  const std::vector<Stretch>& others() const { return others_; }
  /// The most that a shard has.
  std::int64_t most_scales() const { return most(scales_); }
  std::int64_t most_others() const { return most(others_); }
  /// The most shards that have something of one tile.
  std::int64_t most_sharers() const;

  /// What each shard sends: fp32 for its scales, then the others, padded to the largest of both.
  std::int64_t message_bytes(core::DType compute) const;
  /// What stays on every rank: scales in fp32, and the others.
  std::int64_t kept_bytes(core::DType compute) const;
  /// Where in the messages of all shards they are found, 32 bits each.
  std::int64_t index_bytes() const;

 private:
  static std::int64_t most(const std::vector<Stretch>& all);

  std::vector<std::int64_t> places_;
  std::vector<Stretch> scales_;
  std::vector<Stretch> others_;
  std::int64_t num_scales_ = 0;
  std::int64_t num_others_ = 0;
};

/// By unit; null of those that are not in 8 bits. Units that are alike, as blocks are, share one.
std::vector<std::shared_ptr<const Fp8Layout>> fp8_layouts(const model::ParameterTable& table,
                                                          const ShardMap& shards);

}  // namespace finetune::plan
