#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where each parameter lies in its unit's flat buffer, and which run of it each shard keeps.

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "model/parameter_table.hpp"

namespace finetune::plan {

/// A run of consecutive elements of one parameter that one shard keeps.
struct ShardSlice {
  int row = 0;                     ///< of the ParameterTable
  std::int64_t tensor_offset = 0;  ///< first element within the logical tensor
  std::int64_t shard_offset = 0;   ///< first element within the shard
  std::int64_t count = 0;
};

/// One plane of a frozen tensor (model::planes) within its unit's buffer.
struct FrozenPlane {
  int row = 0;
  int plane = 0;
  core::DType dtype = core::DType::f32;
  std::int64_t count = 0;         ///< elements
  std::int64_t offset_bytes = 0;  ///< of the unit's buffer

  friend bool operator==(const FrozenPlane&, const FrozenPlane&) = default;
};

/// A run of a plane that one shard keeps.
struct FrozenSlice {
  FrozenPlane plane;
  std::int64_t first = 0;  ///< element of the plane
  std::int64_t count = 0;  ///< elements
  std::int64_t shard_offset_bytes = 0;
};

/// One unit's flat buffer, then padding to a multiple of the shards. Of a trainable unit: elements
/// of its rows one after the other. Of a frozen one: bytes; first the tensors that are not packed,
/// without gaps, then the values of those in 8 bits and their scales, then the planes of others
/// that are packed, and constants; values and planes each at a multiple of 64 bytes.
struct UnitLayout {
  std::string name;
  bool trainable = true;
  /// Read by many stages and small: gathered once a step and not let go before its end.
  bool stays_gathered = false;
  /// Trained, and gathered in e4m3, an element a byte; plan::Fp8Layout says what else travels.
  bool in_8_bits = false;
  std::vector<int> rows;
  std::vector<std::int64_t> offsets;  ///< trainable: of each row within the flat buffer
  std::vector<FrozenPlane> planes;    ///< frozen: in the order of the buffer
  std::int64_t count = 0;             ///< elements (frozen: bytes) without padding
  std::int64_t shard_size = 0;        ///< elements (frozen: bytes) a shard, padding included
  /// Of experts that ranks share out: its shards are those of fewer ranks (expert_fsdp).
  bool is_of_experts = false;
  std::int64_t num_shards = 1;

  std::int64_t padded_count() const { return shard_size * num_shards; }
  /// Whether it is gathered byte by byte.
  bool is_in_bytes() const { return !trainable || in_8_bits; }
  /// Bytes of an element as it is gathered.
  std::int64_t gathered_bytes(core::DType compute) const {
    return is_in_bytes() ? 1 : core::size_bytes(compute);
  }
};

/// Elements of a trained unit's gradient that ranks of tensor parallelism add up among themselves:
/// of rows that several of them hold. `table`: a rank's own.
std::int64_t elements_in_common(const model::ParameterTable& table, const UnitLayout& unit);

struct ShardRules {
  core::DType compute = core::DType::f32;  ///< of frozen tensors that are not packed
  /// Shards of trainable units begin at multiples of so many elements: what is kept in blocks of
  /// them is never cut.
  std::int64_t block = 1;
  /// Ranks that share the experts of each layer: each shard of a unit of experts is of so many
  /// shards of others.
  std::int64_t ep = 1;
};

class ShardMap {
 public:
  /// The units of `table` have rows of one kind each (see regroup); rules.ep divides `num_shards`.
  ShardMap(const model::ParameterTable& table, std::int64_t num_shards,
           const ShardRules& rules = {});

  /// Of units that are not of shared experts.
  std::int64_t num_shards() const { return num_shards_; }
  const ShardRules& rules() const { return rules_; }
  const std::vector<UnitLayout>& units() const { return units_; }
  const UnitLayout& unit(int i) const { return units_[static_cast<std::size_t>(i)]; }
  int unit_of(int row) const { return unit_of_row_[static_cast<std::size_t>(row)]; }
  /// Of a row of a trainable unit: its first element within the flat buffer. Of a frozen one: the
  /// byte at which its first plane begins.
  std::int64_t offset_of(int row) const { return offset_of_row_[static_cast<std::size_t>(row)]; }

  /// What shard `i_shard` keeps of a trainable unit, in the order of the flat buffer; padding is
  /// not listed. Of a frozen unit: nothing.
  std::vector<ShardSlice> slices(int unit, std::int64_t i_shard) const;

  /// What shard `i_shard` keeps of a frozen unit; of a trainable one nothing.
  std::vector<FrozenSlice> frozen_slices(int unit, std::int64_t i_shard) const;

  /// The planes of a row of a frozen unit, in their order.
  std::vector<FrozenPlane> planes_of(int row) const;

  /// Elements one shard keeps of all trainable units, padding included.
  std::int64_t shard_elements() const;
  /// Bytes one shard keeps of all frozen units, padding included.
  std::int64_t frozen_shard_bytes() const;
  /// Elements of the largest trainable unit, padded.
  std::int64_t largest_unit() const;
  bool has_frozen() const { return frozen_shard_bytes() > 0; }

 private:
  void add_row(const model::Parameter& parameter, int row);
  bool is_of_experts(const model::Parameter& parameter) const {
    return rules_.ep > 1 && parameter.of_experts.has_value();
  }
  void lay_out_frozen(const model::ParameterTable& table, UnitLayout& unit);

  std::int64_t num_shards_;
  ShardRules rules_;
  std::vector<UnitLayout> units_;
  std::vector<int> unit_of_row_;
  std::vector<std::int64_t> offset_of_row_;
};

/// Whether both have frozen units of the same rows, kept and cut in the same way: then a rank's
/// shards of them hold the same.
bool has_same_frozen(const ShardMap& one, const ShardMap& other);

}  // namespace finetune::plan
