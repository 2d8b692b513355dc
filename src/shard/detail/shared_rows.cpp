// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/shared_rows.hpp"

#include <utility>

#include "core/memory_use.hpp"
#include "model/part.hpp"
#include "shard/started.hpp"

namespace finetune::shard {

SharedRows::SharedRows(const model::ParameterTable& table, const plan::ShardMap& map,
                       std::shared_ptr<comm::Group> tp)
    : tp_(std::move(tp)), units_(map.units().size()) {
  if (!tp_ || tp_->size() == 1) return;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const plan::UnitLayout& layout = map.units()[i];
    if (!layout.trainable) continue;
    for (const int row : layout.rows)
      add_row(table.row(row), map.offset_of(row), units_[i]);
  }
}

void SharedRows::add_row(const model::Parameter& row, std::int64_t offset, UnitRuns& unit) const {
  // Of three ranks two may hold the same keys and values: the third takes part with its own.
  if (!row.held || !model::is_shared(row, tp_->size())) return;
  const std::int64_t whole = core::num_elements(row.held->shape);
  unit.has_gaps = unit.has_gaps || row.count() < whole;
  // Ranks that hold different parts of a row write different elements of it.
  model::for_each_run(row, 0, row.count(), [&](std::int64_t logical, std::int64_t count) {
    unit.runs.push_back({offset, count, unit.wire_count + logical});
    offset += count;
  });
  unit.wire_count += whole;
}

void SharedRows::sum(int unit, const at::Tensor& gradients) const {
  const UnitRuns& of = units_[static_cast<std::size_t>(unit)];
  if (of.wire_count == 0) return;
  const core::MemoryScope scope(core::MemoryUse::communication);
  const auto options = gradients.options().dtype(at::kFloat);
  const at::Tensor wire =
      of.has_gaps ? at::zeros({of.wire_count}, options) : at::empty({of.wire_count}, options);
  for (const Run& run : of.runs)
    wire.narrow(0, run.on_wire, run.count).copy_(gradients.narrow(0, run.first, run.count));
  Started(*tp_, {wire}, [&] {
    return tp_->all_reduce(core::DType::f32, wire.data_ptr(), wire.numel());
  }).wait();
  for (const Run& run : of.runs)
    gradients.narrow(0, run.first, run.count).copy_(wire.narrow(0, run.on_wire, run.count));
}

}  // namespace finetune::shard
