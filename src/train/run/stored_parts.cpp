// SPDX-License-Identifier: Apache-2.0
#include "train/run/stored_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "model/part.hpp"

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

/// Blocks of quantised moments are of a unit's buffer, which is another one on each rank of tp, and
/// on each rank of ep if it is of experts.
std::string suffix_of(model::PartPlace place, const plan::UnitLayout& unit) {
  if (place.is_whole()) return "";
  if (!unit.is_of_experts) place.i_ep = 0;
  return fmt::format("-tp{}.{}-ep{}.{}", place.tp, place.i_tp, place.ep, place.i_ep);
}

/// Ranks of tp that hold the same elements take turns too.
Share of_holders(Share share, const model::Parameter& row) {
  if (share.holders == Share::Holders::each || !row.held) return share;
  share.i_part = share.i_part * row.held->num_holders + row.held->holder;
  share.num_parts *= row.held->num_holders;
  return share;
}

bool is_factors(const optim::StateTensor& kept) {
  return kept.of != plan::OptimizerState::Of::elements;
}

/// Every rank of a unit has all of them: where ranks take turns, each stores a part.
void add_factors(const shard::ModelShards& shards, int unit, std::size_t i_kept,
                 const optim::StateTensor& kept, Share share, std::vector<StoredPart>& parts) {
  const plan::UnitLayout& layout = shards.map().unit(unit);
  if (share.holders == Share::Holders::take_turns) {
    share.i_part = share.i_part * layout.num_shards + shards.shard_of(unit);
    share.num_parts *= layout.num_shards;
  }
  const plan::OptimizerState state{.kind = kept.kind, .of = kept.of};
  std::int64_t before = 0;
  for (const int i_row : layout.rows) {
    const model::Parameter& row = shards.table().row(i_row);
    const auto shape = state.factor_shape(row);
    if (!shape) continue;
    const std::int64_t count = core::num_elements(*shape);
    const Range range = part_of(count, share.i_part, share.num_parts);
    if (range.count() > 0)
      parts.push_back({i_kept,
                       {.name = row.name,
                        .shape = *shape,
                        .dtype = dtype_of(kept.values),
                        .offset = range.first,
                        .count = range.count()},
                       before + range.first});
    before += count;
  }
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
                                 const std::vector<optim::StateTensor>& kept, const Share& share) {
  std::vector<StoredPart> parts;
  const int i_shard = shards.shard_of(unit);
  for (const plan::ShardSlice& whole : shards.map().slices(unit, i_shard)) {
    const model::Parameter& row = shards.table().row(whole.row);
    const Share own = of_holders(share, row);
    const Range range = part_of(whole.count, own.i_part, own.num_parts);
    if (range.count() == 0) continue;
    std::int64_t offset = whole.shard_offset + range.first;
    for (core::TensorSlice& slice : model::logical_slices(
             row, core::DType::f32, whole.tensor_offset + range.first, range.count())) {
      for (std::size_t i = 0; i < kept.size(); ++i) {
        if (kept[i].block != 1 || is_factors(kept[i])) continue;
        slice.dtype = dtype_of(kept[i].values);
        parts.push_back({i, slice, offset});
      }
      offset += slice.count;
    }
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (is_factors(kept[i])) add_factors(shards, unit, i, kept[i], share, parts);
    if (kept[i].block == 1 || is_factors(kept[i])) continue;
    core::TensorSlice slice = blocks_of(shards.map().unit(unit), kept[i], i_shard);
    slice.name += suffix_of(shards.groups().part_place(), shards.map().unit(unit));
    const Range range = part_of(slice.count, share.i_part, share.num_parts);
    if (range.count() == 0) continue;
    slice.offset += range.first;
    slice.count = range.count();
    parts.push_back({i, slice, range.first});
  }
  return parts;
}

}  // namespace finetune::train
