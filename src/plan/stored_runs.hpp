#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which rank writes which elements of a checkpoint: arithmetic of what each holds.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor_slice.hpp"
#include "model/parameter_table.hpp"
#include "model/part.hpp"
#include "plan/layout/mesh.hpp"
#include "plan/layout/shard_map.hpp"
#include "plan/optimizer.hpp"

namespace finetune::plan {

/// The kind of master weights in a checkpoint.
inline constexpr const char* master_kind = "master";

/// Where a rank is among those that hold a trained unit: its part of the matrices and experts, its
/// shard of the unit, its copy of the model.
struct HolderPlace {
  model::PartPlace part = {};
  std::int64_t i_shard = 0;
  std::int64_t i_copy = 0;
  std::int64_t num_copies = 1;
};

/// The place of the rank at `position` of the mesh's world, in such a unit.
HolderPlace holder_place(const Mesh& mesh, std::int64_t position, const UnitLayout& unit);

/// A run of one of the tensors that a rank keeps of a unit, as a slice of a checkpoint's tensor.
struct StoredRun {
  std::size_t kept = 0;  ///< index into what is kept
  core::TensorSlice slice;
  std::int64_t offset = 0;  ///< first element in the tensor that is kept
};

/// Of what several ranks hold alike: all of it each, or a part each, so that every element is in
/// one.
enum class Holders { each, take_turns };

/// The runs of a rank's shard of trained unit `unit`; padding is in none. `own`: the rank's own
/// table; `kept`: what it keeps of the unit, with dtypes. Values of single elements are slices of
/// the parameters; those of blocks are slices of one tensor [blocks of the unit] with the unit's
/// name, and the rank's part where matrices or experts are shared out. Factors have the parameters'
/// names, and shapes of their own.
///
/// Ranks of tp that hold the same elements of a row may have them in other places of their buffers,
/// and cut elsewhere: which of them writes an element follows from where it lies in the part of the
/// logical tensor, not in the shard. Copies of the model have the same shards, and divide runs.
std::vector<StoredRun> stored_runs(const model::ParameterTable& own, const ShardMap& map, int unit,
                                   const HolderPlace& place, std::span<const OptimizerState> kept,
                                   Holders holders);

/// What a rank keeps of a trained unit with such an optimizer, with dtypes: master weights first.
std::vector<OptimizerState> stored_states(const OptimizerFootprint& optimizer,
                                          const Numbers& numbers);

}  // namespace finetune::plan
