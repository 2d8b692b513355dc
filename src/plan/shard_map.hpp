#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where each parameter lies in its unit's flat buffer, and which run of it each shard keeps.

#include <cstdint>
#include <string>
#include <vector>

#include "model/parameter_table.hpp"

namespace finetune::plan {

/// A run of consecutive elements of one parameter that one shard keeps.
struct ShardSlice {
  int row = 0;                     ///< of the ParameterTable
  std::int64_t tensor_offset = 0;  ///< first element within the logical tensor
  std::int64_t shard_offset = 0;   ///< first element within the shard
  std::int64_t count = 0;
};

/// One unit's flat buffer: its rows one after the other, then padding to a multiple of the shards.
struct UnitLayout {
  std::string name;
  std::vector<int> rows;
  std::vector<std::int64_t> offsets;  ///< of each row within the flat buffer
  std::int64_t count = 0;             ///< elements without padding
  std::int64_t shard_size = 0;        ///< elements a shard, padding included

  std::int64_t padded_count(std::int64_t num_shards) const { return shard_size * num_shards; }
};

class ShardMap {
 public:
  ShardMap(const model::ParameterTable& table, std::int64_t num_shards);

  std::int64_t num_shards() const { return num_shards_; }
  const std::vector<UnitLayout>& units() const { return units_; }
  int unit_of(int row) const { return unit_of_row_[static_cast<std::size_t>(row)]; }
  std::int64_t offset_of(int row) const { return offset_of_row_[static_cast<std::size_t>(row)]; }

  /// What shard `i_shard` keeps of a unit, in the order of the flat buffer; padding is not listed.
  std::vector<ShardSlice> slices(int unit, std::int64_t i_shard) const;

  /// Elements one shard keeps of all units, padding included.
  std::int64_t shard_elements() const;
  /// Elements of the largest unit, padded.
  std::int64_t largest_unit() const;

 private:
  std::int64_t num_shards_;
  std::vector<UnitLayout> units_;
  std::vector<int> unit_of_row_;
  std::vector<std::int64_t> offset_of_row_;
};

}  // namespace finetune::plan
