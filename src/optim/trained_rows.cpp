// SPDX-License-Identifier: Apache-2.0
#include "optim/trained_rows.hpp"

#include <algorithm>

namespace finetune::optim {

plan::ShardSlice trained_part(const model::Parameter& row, const plan::ShardSlice& slice) {
  if (!row.trained_rows) return slice;
  const std::int64_t row_size = row.count() / row.shape.front();
  const std::int64_t first = row.trained_rows->first * row_size;
  const std::int64_t end = first + row.trained_rows->num * row_size;
  plan::ShardSlice part = slice;
  part.tensor_offset = std::max(slice.tensor_offset, first);
  part.shard_offset += part.tensor_offset - slice.tensor_offset;
  part.count = std::max<std::int64_t>(
      0, std::min(slice.tensor_offset + slice.count, end) - part.tensor_offset);
  return part;
}

void forget_other_rows(shard::ModelShards& shards) {
  for (const int unit : shards.trained_units())
    forget_other_rows(shards, unit);
}

void forget_other_rows(shard::ModelShards& shards, int unit) {
  for (const plan::ShardSlice& slice : shards.map().slices(unit, shards.shard_of(unit))) {
    const model::Parameter& row = shards.table().row(slice.row);
    if (!row.trainable || !row.trained_rows) continue;
    const plan::ShardSlice part = trained_part(row, slice);
    const at::Tensor gradient = shards.gradient(unit).narrow(0, slice.shard_offset, slice.count);
    if (part.count == 0) {
      gradient.zero_();
      continue;
    }
    const std::int64_t before = part.tensor_offset - slice.tensor_offset;
    gradient.narrow(0, 0, before).zero_();
    gradient.narrow(0, before + part.count, slice.count - before - part.count).zero_();
  }
}

}  // namespace finetune::optim
