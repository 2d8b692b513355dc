// SPDX-License-Identifier: Apache-2.0
#include "plan/stored_runs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"

namespace finetune::plan {
namespace {

struct Range {
  std::int64_t first = 0, last = 0;
  std::int64_t count() const { return last - first; }
};

Range part_of(std::int64_t count, std::int64_t i_part, std::int64_t num_parts) {
  return {count * i_part / num_parts, count * (i_part + 1) / num_parts};
}

Range common(Range a, Range b) {
  return {std::max(a.first, b.first),
          std::max(std::max(a.first, b.first), std::min(a.last, b.last))};
}

/// Blocks of quantised moments are of a unit's buffer, which is another one on each rank of tp, and
/// on each rank of ep if it is of experts.
std::string suffix_of(model::PartPlace part, const UnitLayout& unit) {
  if (part.is_whole()) return "";
  if (!unit.is_of_experts) part.i_ep = 0;
  return fmt::format("-tp{}.{}-ep{}.{}", part.tp, part.i_tp, part.ep, part.i_ep);
}

class Runs {
 public:
  Runs(const model::ParameterTable& own, const ShardMap& map, int unit, const HolderPlace& place,
       std::span<const OptimizerState> kept, Holders holders)
      : own_(own),
        map_(map),
        unit_(unit),
        layout_(map.unit(unit)),
        place_(place),
        kept_(kept),
        takes_turns_(holders == Holders::take_turns) {}

  std::vector<StoredRun> all() {
    for (const ShardSlice& slice : map_.slices(unit_, place_.i_shard))
      add_elements(slice);
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if (!kept_[i].is_of_elements())
        add_factors(i);
      else if (kept_[i].block > 1)
        add_blocks(i);
    }
    return std::move(runs_);
  }

 private:
  /// This copy's part of a run that every copy of the model has.
  Range of_copy(Range run) const {
    if (!takes_turns_) return run;
    const Range part = part_of(run.count(), place_.i_copy, place_.num_copies);
    return {run.first + part.first, run.first + part.last};
  }

  void add_elements(const ShardSlice& whole) {
    const model::Parameter& row = own_.row(whole.row);
    Range run = {whole.tensor_offset, whole.tensor_offset + whole.count};
    if (takes_turns_ && row.held)
      run = common(run, part_of(row.count(), row.held->holder, row.held->num_holders));
    run = of_copy(run);
    if (run.count() == 0) return;
    std::int64_t offset = whole.shard_offset + run.first - whole.tensor_offset;
    for (core::TensorSlice& slice :
         model::logical_slices(row, core::DType::f32, run.first, run.count())) {
      for (std::size_t i = 0; i < kept_.size(); ++i) {
        if (kept_[i].block != 1 || !kept_[i].is_of_elements()) continue;
        slice.dtype = kept_[i].dtype.value();
        runs_.push_back({i, slice, offset});
      }
      offset += slice.count;
    }
  }

  /// Every rank of a unit has all of them: where ranks take turns, each stores a part.
  void add_factors(std::size_t i_kept) {
    std::int64_t i_part = 0, num_parts = 1;
    if (takes_turns_) {
      i_part = place_.i_copy * layout_.num_shards + place_.i_shard;
      num_parts = place_.num_copies * layout_.num_shards;
    }
    std::int64_t before = 0;
    for (const int i_row : layout_.rows) {
      const model::Parameter& row = own_.row(i_row);
      const auto shape = kept_[i_kept].factor_shape(row);
      if (!shape) continue;
      const std::int64_t count = core::num_elements(*shape);
      const Range range = part_of(count, i_part, num_parts);
      if (range.count() > 0)
        runs_.push_back({i_kept,
                         {.name = row.name,
                          .shape = *shape,
                          .dtype = kept_[i_kept].dtype.value(),
                          .offset = range.first,
                          .count = range.count()},
                         before + range.first});
      before += count;
    }
  }

  /// Blocks with elements that the shard keeps, of all blocks of the unit.
  void add_blocks(std::size_t i_kept) {
    const std::int64_t block = kept_[i_kept].block;
    const std::int64_t all = (layout_.count + block - 1) / block;
    const std::int64_t of_shard = layout_.shard_size / block;
    const std::int64_t first = std::min(place_.i_shard * of_shard, all);
    const Range run = of_copy({first, std::min(first + of_shard, all)});
    if (run.count() == 0) return;
    runs_.push_back({i_kept,
                     {.name = layout_.name + suffix_of(place_.part, layout_),
                      .shape = {all},
                      .dtype = kept_[i_kept].dtype.value(),
                      .offset = run.first,
                      .count = run.count()},
                     run.first - first});
  }

  const model::ParameterTable& own_;
  const ShardMap& map_;
  int unit_;
  const UnitLayout& layout_;
  const HolderPlace& place_;
  std::span<const OptimizerState> kept_;
  bool takes_turns_;
  std::vector<StoredRun> runs_;
};

}  // namespace

HolderPlace holder_place(const Mesh& mesh, std::int64_t position, const UnitLayout& unit) {
  const std::int64_t in_fsdp = mesh.axes.place(groups::fsdp, position).number;
  return {.part = {.tp = mesh.axes[Axis::tp],
                   .i_tp = mesh.axes.place(groups::tp, position).number,
                   .ep = mesh.ep,
                   .i_ep = in_fsdp % mesh.ep},
          .i_shard = unit.is_of_experts ? in_fsdp / mesh.ep : in_fsdp,
          .i_copy = mesh.axes.place(groups::dp_replicate, position).number,
          .num_copies = mesh.size(groups::dp_replicate)};
}

std::vector<StoredRun> stored_runs(const model::ParameterTable& own, const ShardMap& map, int unit,
                                   const HolderPlace& place, std::span<const OptimizerState> kept,
                                   Holders holders) {
  return Runs(own, map, unit, place, kept, holders).all();
}

std::vector<OptimizerState> stored_states(const OptimizerFootprint& optimizer,
                                          const Numbers& numbers) {
  std::vector<OptimizerState> states = {{.kind = master_kind, .dtype = numbers.master}};
  for (OptimizerState state : optimizer.states) {
    state.dtype = state.dtype_in(numbers);
    states.push_back(std::move(state));
  }
  return states;
}

}  // namespace finetune::plan
