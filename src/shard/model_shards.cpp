// SPDX-License-Identifier: Apache-2.0
#include "shard/model_shards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>

#include "core/error.hpp"
#include "core/memory_use.hpp"

namespace finetune::shard {

ModelShards::ModelShards(const model::ParameterTable& table, const plan::ShardMap& map,
                         const Groups& groups, const Options& options, const ModelShards* frozen_of)
    : table_(table),
      map_(map),
      groups_(groups),
      options_(options),
      written_(table.rows.size(), 0),
      published_(groups.told_of_buffers(options.registers_buffers)),
      pool_(to_aten(options.numbers.compute), options.device,
            groups.told_of_buffers(options.registers_buffers)),
      byte_pool_(at::kByte, options.device, groups.told_of_buffers(options.registers_buffers)),
      gradients_(map, groups, options),
      shared_rows_(table, map, groups.tp) {
  core::check(map.num_shards() == groups.fsdp->size() &&
                  map.rules().ep == (groups.ep ? groups.ep->size() : 1),
              "the shard map belongs to the communicators");
  const auto layouts = plan::fp8_layouts(table, map);
  std::map<const plan::Fp8Layout*, std::shared_ptr<const Fp8Index>> indices;
  const auto made = [](core::DType dtype, at::Device device) {
    return at::TensorOptions().dtype(to_aten(dtype)).device(device);
  };
  core::check(!map.has_frozen() || map.rules().compute == options.numbers.compute,
              "the shard map has the dtype to compute in");
  const core::MemoryScope scope(core::MemoryUse::weights);
  for (const plan::UnitLayout& layout : map.units()) {
    Unit& unit = units_.emplace_back();
    if (!layout.trainable) {
      unit.published =
          frozen_of != nullptr
              ? frozen_of->published(frozen_of->unit_of(layout.rows.front()))
              : at::zeros({layout.shard_size}, at::TensorOptions(at::kByte).device(options.device));
      continue;
    }
    trained_units_.push_back(static_cast<int>(units_.size()) - 1);
    // Zeroed: padding takes part in norms and must not be garbage.
    unit.master =
        at::zeros({layout.shard_size}, made(options.numbers.master, options.state_device));
    if (layout.in_8_bits) {
      const std::size_t i = units_.size() - 1;
      auto& index = indices[layouts[i].get()];
      if (!index) index = make_fp8_index(*layouts[i], options.device);
      unit.published =
          at::zeros({layout.shard_size}, at::TensorOptions(at::kByte).device(options.device));
      unit.fp8.emplace(table, map, static_cast<int>(i), layouts[i], index, options.numbers.compute,
                       options.device);
      continue;
    }
    unit.published = publishes_masters() ? unit.master
                                         : at::zeros({layout.shard_size},
                                                     made(options.numbers.compute, options.device));
  }
  for (const Unit& unit : units_)
    published_.add(unit.published);
  if (frozen_of != nullptr) note_of_frozen_ = frozen_of->note_of_frozen_;
}

ModelShards::~ModelShards() {
  // What is on its way refers to this memory.
  if (std::uncaught_exceptions() > 0) {
    for (const auto& each : groups_.all())
      each.group->abandon();
    // Messages that never arrived are still MPI's to write: their memory outlives this process.
    new auto(std::move(units_));
    new auto(std::move(pool_));
    new auto(std::move(byte_pool_));
    new auto(std::move(published_));
    return;
  }
  try {
    for (const auto& each : groups_.all())
      each.group->synchronize();
  } catch (...) {
    // The run is told by whoever waits for a result; here nobody does.
  }
}

void ModelShards::require_closed(int unit) const {
  const Unit& u = at(unit);
  core::check(u.num_open == 0, "weights change only while their unit is closed");
  core::check(is_alone(unit) || !u.full.defined(),
              "what was gathered of a unit would be out of date");
}

void ModelShards::publish(int unit, HostCopy& written) {
  require_closed(unit);
  written.start_write_back();
}

void ModelShards::publish(int unit) {
  require_closed(unit);
  Unit& u = at(unit);
  if (u.fp8)
    return u.fp8->publish(u.master, u.published, is_alone(unit) ? nullptr : &group_of(unit));
  if (!is_trained(unit)) return;
  if (publishes_masters())
    u.published = u.master;
  else
    u.published.copy_(u.master);
}

void ModelShards::publish_in_place(int unit, const at::Tensor& values) {
  require_closed(unit);
  Unit& u = at(unit);
  if (u.fp8) return u.fp8->publish(values, u.published, is_alone(unit) ? nullptr : &group_of(unit));
  if (publishes_masters())
    u.published = values.to(u.master.scalar_type());
  else
    u.published.copy_(values);
}

bool ModelShards::publishes_masters() const {
  return options_.numbers.compute == options_.numbers.master &&
         options_.device == options_.state_device;
}

void ModelShards::publish_all() {
  release_all();
  for (int unit = 0; unit < num_units(); ++unit)
    publish(unit);
}

void ModelShards::gather(int unit) {
  Unit& u = at(unit);
  if (u.full.defined()) return;
  if (is_alone(unit)) {
    u.full = u.published;
    return;
  }
  const core::MemoryScope scope(core::MemoryUse::gathered);
  const std::int64_t shard_size = u.published.numel();
  u.full = pool_of(unit).take(map_.unit(unit).padded_count());
  u.gathering =
      group_of(unit).all_gather(is_in_bytes(unit) ? core::DType::u8 : options_.numbers.compute,
                                u.published.data_ptr(), u.full.data_ptr(), shard_size);
}

void ModelShards::open(int unit) {
  gather(unit);
  ++at(unit).num_open;
}

void ModelShards::wait_for(int unit) const {
  group_of(unit).wait(std::exchange(at(unit).gathering, comm::nothing_started));
}

void ModelShards::release(int unit) {
  Unit& u = at(unit);
  core::check(u.num_open == 0, "only closed units are released");
  if (!u.full.defined()) return;
  // A rank that had nothing to compute has not read it, but it was written to.
  wait_for(unit);
  if (!is_alone(unit)) pool_of(unit).put(u.full);
  u.full = at::Tensor();
}

void ModelShards::close(int unit) {
  Unit& u = at(unit);
  core::check(u.num_open > 0, "a unit is closed as often as it is opened");
  --u.num_open;
}

void ModelShards::release_all() {
  for (int unit = 0; unit < num_units(); ++unit)
    release(unit);
}

void ModelShards::open_gradient(int unit) {
  Unit& u = at(unit);
  if (u.gradient_is_open || !is_trained(unit)) return;
  u.gradient_is_open = true;
  u.full_gradient = gradients_.take_buffer(unit);
  // Where the buffer is the sum itself, a step's later passes add to what is there.
  const char is_written = gradients_.sums_in_place() && gradients_.has_sum(unit) ? 1 : 0;
  for (const int row : map_.units()[static_cast<std::size_t>(unit)].rows)
    written_[static_cast<std::size_t>(row)] = is_written;
}

void ModelShards::zero_unwritten(int unit) {
  Unit& u = at(unit);
  const plan::UnitLayout& layout = map_.units()[static_cast<std::size_t>(unit)];
  for (const int row : layout.rows) {
    if (written_[static_cast<std::size_t>(row)] == 0) view(u.full_gradient, {row, 1}).zero_();
  }
  const std::int64_t padding = u.full_gradient.numel() - layout.count;
  if (padding > 0) u.full_gradient.narrow(0, layout.count, padding).zero_();
}

void ModelShards::reduce_gradient(int unit, Gradients::Pass pass) {
  if (!is_trained(unit)) return;
  Unit& u = at(unit);
  core::check(u.gradient_is_open, "only an open gradient is reduced");
  zero_unwritten(unit);
  // A sum that passes add to in place is summed over ranks once.
  if (!gradients_.sums_in_place() || pass == Gradients::Pass::last)
    shared_rows_.sum(unit, u.full_gradient);
  if (look_) look_(unit, u.full_gradient);
  u.gradient_is_open = false;
  gradients_.reduce(unit, std::exchange(u.full_gradient, at::Tensor()), pass);
}

void ModelShards::reset_gradients(std::int64_t num_micro_batches) {
  gradients_.reset(num_micro_batches);
}

std::optional<std::string> ModelShards::out_of_range() {
  const auto found = gradients_.out_of_range();
  if (!found) return std::nullopt;
  const plan::UnitLayout& layout = map_.units()[static_cast<std::size_t>(found->unit)];
  std::size_t i = 0;
  while (i + 1 < layout.offsets.size() && layout.offsets[i + 1] <= found->element)
    ++i;
  const model::Parameter& row = table_.rows[static_cast<std::size_t>(layout.rows[i])];
  return fmt::format("the gradient of {} is {} at element {}", row.name, found->value,
                     found->element - layout.offsets[i]);
}

}  // namespace finetune::shard
