#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a rank keeps of a unit, as parts of the logical tensors of a checkpoint.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor_slice.hpp"
#include "model/parameter_table.hpp"
#include "optim/optimizer.hpp"
#include "shard/model_shards.hpp"

namespace finetune::train {

inline constexpr const char* kind_master = "master";

/// Master weights and what the optimizer keeps of a trained unit.
std::vector<optim::StateTensor> kept_of(const shard::ModelShards& shards,
                                        const optim::Optimizer& optimizer, int unit);

/// A run of one of those tensors.
struct StoredPart {
  std::size_t kept = 0;  ///< index into kept_of
  core::TensorSlice slice;
  std::int64_t offset = 0;  ///< first element in the tensor that is kept
};

/// Part `i_part` of `num_parts` of everything.
struct Share {
  std::int64_t i_part = 0;
  std::int64_t num_parts = 1;
  /// Of what several ranks of tp hold: all of it each, or a part each.
  enum class Holders { each, take_turns } holders = Holders::each;
};

/// `share` of every run of this rank's shard; padding is in none. Values of single elements are
/// slices of the parameters; those of blocks are slices of one tensor [blocks of the unit] with the
/// unit's name, and the rank's place where matrices or experts are shared out. Factors have the
/// parameters' names, and shapes of their own.
std::vector<StoredPart> parts_of(const shard::ModelShards& shards, int unit,
                                 const std::vector<optim::StateTensor>& kept, const Share& share);

}  // namespace finetune::train
