// SPDX-License-Identifier: Apache-2.0
#include "train/run/stored_parts.hpp"

#include <algorithm>

#include "base/initial_weights.hpp"
#include "core/error.hpp"

namespace finetune::train {
namespace {

core::DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return core::DType::f32;
    case at::kBFloat16:
      return core::DType::bf16;
    case at::kByte:
      return core::DType::u8;
    default:
      core::check(false, "weights and moments are fp32, bf16 or bytes");
      return {};
  }
}

struct Range {
  std::int64_t first = 0, last = 0;
  std::int64_t count() const { return last - first; }
};

Range part_of(std::int64_t count, std::int64_t i_part, std::int64_t num_parts) {
  return {count * i_part / num_parts, count * (i_part + 1) / num_parts};
}

/// Blocks with elements that shard `i_shard` keeps, as a slice of all blocks of the unit.
core::TensorSlice blocks_of(const plan::UnitLayout& unit, const optim::StateTensor& kept,
                            std::int64_t i_shard) {
  const std::int64_t all = (unit.count + kept.block - 1) / kept.block;
  const std::int64_t of_shard = unit.shard_size / kept.block;
  const std::int64_t first = std::min(i_shard * of_shard, all);
  return {.name = unit.name,
          .shape = {all},
          .dtype = dtype_of(kept.values),
          .offset = first,
          .count = std::min(first + of_shard, all) - first};
}

}  // namespace

std::vector<optim::StateTensor> kept_of(const shard::ModelShards& shards,
                                        const optim::Optimizer& optimizer, int unit) {
  std::vector<optim::StateTensor> all = {{kind_master, shards.master(unit)}};
  for (optim::StateTensor& kept : optimizer.kept(unit))
    all.push_back(std::move(kept));
  return all;
}

std::vector<StoredPart> parts_of(const shard::ModelShards& shards, int unit,
                                 const std::vector<optim::StateTensor>& kept, std::int64_t i_part,
                                 std::int64_t num_parts) {
  std::vector<StoredPart> parts;
  const int i_shard = shards.fsdp().rank();
  for (const plan::ShardSlice& whole : shards.map().slices(unit, i_shard)) {
    const Range range = part_of(whole.count, i_part, num_parts);
    if (range.count() == 0) continue;
    const std::int64_t offset = whole.shard_offset + range.first;
    core::TensorSlice slice =
        base::tensor_slice(shards.table().row(whole.row),
                           {whole.row, whole.tensor_offset + range.first, offset, range.count()});
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i].block != 1) continue;
      slice.dtype = dtype_of(kept[i].values);
      parts.push_back({i, slice, offset});
    }
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].block == 1) continue;
    core::TensorSlice slice = blocks_of(shards.map().unit(unit), kept[i], i_shard);
    const Range range = part_of(slice.count, i_part, num_parts);
    if (range.count() == 0) continue;
    slice.offset += range.first;
    slice.count = range.count();
    parts.push_back({i, slice, range.first});
  }
  return parts;
}

}  // namespace finetune::train
