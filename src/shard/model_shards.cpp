// SPDX-License-Identifier: Apache-2.0
#include "shard/model_shards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "core/error.hpp"
#include "core/memory_use.hpp"

namespace finetune::shard {
namespace {

at::Tensor plane_view(const at::Tensor& bytes, const plan::FrozenPlane& plane, std::int64_t count) {
  const at::Tensor part =
      bytes.narrow(0, plane.offset_bytes, count * core::size_bytes(plane.dtype));
  return plane.dtype == core::DType::u8 ? part : part.view(to_aten(plane.dtype));
}

}  // namespace

ModelShards::ModelShards(const model::ParameterTable& table, const plan::ShardMap& map,
                         const Groups& groups, const Options& options)
    : table_(table),
      map_(map),
      groups_(groups),
      options_(options),
      written_(table.rows.size(), 0),
      published_(groups.told_of_buffers(options.registers_buffers)),
      pool_(to_aten(options.numbers.compute), options.device,
            groups.told_of_buffers(options.registers_buffers)),
      frozen_pool_(at::kByte, options.device, groups.told_of_buffers(options.registers_buffers)),
      gradients_(map, groups, options),
      shared_rows_(table, map, groups.tp) {
  core::check(map.num_shards() == groups.fsdp->size() &&
                  map.rules().ep == (groups.ep ? groups.ep->size() : 1),
              "the shard map belongs to the communicators");
  const bool is_master =
      options.numbers.compute == options.numbers.master && options.device == options.state_device;
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
          at::zeros({layout.shard_size}, at::TensorOptions(at::kByte).device(options.device));
      continue;
    }
    trained_units_.push_back(static_cast<int>(units_.size()) - 1);
    // Zeroed: padding takes part in norms and must not be garbage.
    unit.master =
        at::zeros({layout.shard_size}, made(options.numbers.master, options.state_device));
    unit.published =
        is_master ? unit.master
                  : at::zeros({layout.shard_size}, made(options.numbers.compute, options.device));
  }
  for (const Unit& unit : units_)
    published_.add(unit.published);
}

ModelShards::~ModelShards() {
  // What is on its way refers to this memory.
  if (std::uncaught_exceptions() > 0) {
    for (const auto& each : groups_.all())
      each.group->abandon();
    // Messages that never arrived are still MPI's to write: their memory outlives this process.
    new auto(std::move(units_));
    new auto(std::move(pool_));
    new auto(std::move(frozen_pool_));
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
  if (is_trained(unit) && !u.published.is_same(u.master)) u.published.copy_(u.master);
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
      group_of(unit).all_gather(is_trained(unit) ? options_.numbers.compute : core::DType::u8,
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

at::Tensor ModelShards::view(const at::Tensor& flat, model::RowRange rows) const {
  std::vector<std::int64_t> shape = table_.rows[static_cast<std::size_t>(rows.first)].shape;
  std::int64_t count = core::num_elements(shape);
  for (int row = rows.first + 1; row < rows.first + rows.num; ++row) {
    const model::Parameter& next = table_.rows[static_cast<std::size_t>(row)];
    shape[0] += next.shape[0];
    count += next.count();
  }
  return flat.narrow(0, map_.offset_of(rows.first), count).view(shape);
}

at::Tensor ModelShards::weight(model::RowRange rows) const {
  return model::unpacked(matrix(rows));
}

model::Weight ModelShards::matrix(model::RowRange rows) const {
  model::Weight weight = dense_or_packed(rows);
  const auto& recipe = options_.numbers.fp8;
  if (recipe && model::has_fp8_product(table_, rows, *recipe)) weight.fp8 = recipe;
  return weight;
}

model::Weight ModelShards::dense_or_packed(model::RowRange rows) const {
  if (!is_of_one_unit(rows)) return {joined(rows)};
  const int i_unit = map_.unit_of(rows.first);
  const Unit& unit = at(i_unit);
  core::check(unit.num_open > 0, "weights are read while their unit is open");
  wait_for(i_unit);
  if (!table_.row(rows.first).trainable) return frozen_matrix(unit.full, rows);
  return {view(unit.full, rows)};
}

model::Weight ModelShards::frozen_matrix(const at::Tensor& bytes, model::RowRange rows) const {
  model::Weight weight{.dense = {}, .packed = {}, .compute = compute_dtype()};
  bool is_dense = true;
  std::vector<std::int64_t> shape = table_.row(rows.first).shape;
  shape[0] = 0;
  std::int64_t count = 0;
  for (int i = rows.first; i < rows.first + rows.num; ++i) {
    const model::Parameter& row = table_.row(i);
    is_dense = is_dense && row.packing.is_dense();
    shape[0] += row.shape[0];
    count += row.count();
    std::vector<at::Tensor> planes;
    for (const plan::FrozenPlane& plane : map_.planes_of(i))
      planes.push_back(plane_view(bytes, plane, plane.count));
    weight.packed.push_back({&row, std::move(planes)});
  }
  if (!is_dense) return weight;
  // Neighbours that are not packed lie in the unit as one.
  return {plane_view(bytes, map_.planes_of(rows.first).front(), count).view(shape)};
}

/// In elements; 0: they do not lie at one distance, or are packed.
std::int64_t ModelShards::distance_of(const model::RowSeries& series) const {
  const int unit = map_.unit_of(series.first.first);
  const std::int64_t begin = map_.offset_of(series.first.first);
  std::int64_t distance = 0;
  for (std::int64_t i = 0; i < series.num; ++i) {
    const model::RowRange rows = series.at(i);
    for (int row = rows.first; row < rows.first + rows.num; ++row)
      if (map_.unit_of(row) != unit || !table_.row(row).packing.is_dense()) return 0;
    if (i == 0) distance = table_.row(rows.first).count() * rows.num;
    if (i == 1) distance = map_.offset_of(rows.first) - begin;
    if (i > 0 && map_.offset_of(rows.first) != begin + i * distance) return 0;
  }
  // Frozen rows are counted in bytes.
  const bool in_bytes = !map_.unit(unit).trainable && series.num > 1;
  return in_bytes ? distance / core::size_bytes(options_.numbers.compute) : distance;
}

at::Tensor ModelShards::view(const at::Tensor& flat, const model::RowSeries& series,
                             std::int64_t first_element) const {
  const std::int64_t columns = table_.row(series.first.first).shape.at(1);
  std::int64_t rows = 0;
  for (int row = series.first.first; row < series.first.first + series.first.num; ++row)
    rows += table_.row(row).shape.front();
  return flat.as_strided({series.num, rows, columns}, {distance_of(series), columns, 1},
                         flat.storage_offset() + first_element);
}

at::Tensor ModelShards::series(const model::RowSeries& series) const {
  if (distance_of(series) == 0) return {};
  const int i_unit = map_.unit_of(series.first.first);
  const Unit& unit = at(i_unit);
  core::check(unit.num_open > 0, "weights are read while their unit is open");
  wait_for(i_unit);
  const std::int64_t offset = map_.offset_of(series.first.first);
  if (map_.unit(i_unit).trainable) return view(unit.full, series, offset);
  // From the first byte of the series on, so that planes of other dtypes before it do not matter.
  const std::int64_t element = core::size_bytes(options_.numbers.compute);
  const std::int64_t bytes = (unit.full.numel() - offset) / element * element;
  return view(unit.full.narrow(0, offset, bytes).view(compute_dtype()), series, 0);
}

model::GradientSlot ModelShards::series_gradient(const model::RowSeries& series) {
  if (!table_.row(series.first.first).trainable) return {};
  const Unit& unit = at(map_.unit_of(series.first.first));
  core::check(unit.gradient_is_open, "gradients are written while their unit's gradient is open");
  std::vector<int> unwritten;
  for (std::int64_t i = 0; i < series.num; ++i) {
    for (int row = series.at(i).first; row < series.at(i).first + series.first.num; ++row) {
      char& is_written = written_[static_cast<std::size_t>(row)];
      if (is_written == 0) unwritten.push_back(row);
      is_written = 1;
    }
  }
  const bool accumulate = std::ssize(unwritten) < series.num * series.first.num;
  if (accumulate)
    for (const int row : unwritten)
      view(unit.full_gradient, {row, 1}).zero_();
  return {view(unit.full_gradient, series, map_.offset_of(series.first.first)), accumulate};
}

bool ModelShards::is_of_one_unit(model::RowRange rows) const {
  for (int i = rows.first + 1; i < rows.first + rows.num; ++i)
    if (unit_of(i) != unit_of(rows.first)) return false;
  return true;
}

at::Tensor ModelShards::joined(model::RowRange rows) const {
  std::vector<at::Tensor> parts;
  for (int i = rows.first; i < rows.first + rows.num; ++i)
    parts.push_back(weight({i, 1}));
  return at::cat(parts);
}

std::vector<model::TrainedPart> ModelShards::trained(model::RowRange rows) const {
  std::vector<model::TrainedPart> parts;
  std::int64_t first_output = 0;
  for (int i = rows.first; i < rows.first + rows.num; ++i) {
    const std::int64_t num_outputs = table_.row(i).shape.front();
    const bool is_next = !parts.empty() && parts.back().rows.first + parts.back().rows.num == i;
    if (table_.row(i).trainable && is_next) {
      ++parts.back().rows.num;
      parts.back().num_outputs += num_outputs;
    } else if (table_.row(i).trainable) {
      parts.push_back({{i, 1}, first_output, num_outputs});
    }
    first_output += num_outputs;
  }
  return parts;
}

std::vector<model::AdaptedPart> ModelShards::adapted(model::RowRange rows) const {
  std::vector<model::AdaptedPart> parts;
  std::int64_t first_output = 0;
  for (int i = rows.first; i < rows.first + rows.num; ++i) {
    const model::Parameter& row = table_.row(i);
    const std::int64_t num_outputs = row.shape.front();
    if (row.adapted.exists()) parts.push_back({i, &row.adapted, first_output, num_outputs});
    first_output += num_outputs;
  }
  return parts;
}

model::GradientSlot ModelShards::gradient(model::RowRange rows) {
  if (!table_.rows[static_cast<std::size_t>(rows.first)].trainable) return {};
  const Unit& unit = at(map_.unit_of(rows.first));
  core::check(unit.gradient_is_open, "gradients are written while their unit's gradient is open");
  const bool accumulate = written_[static_cast<std::size_t>(rows.first)] != 0;
  for (int row = rows.first; row < rows.first + rows.num; ++row)
    written_[static_cast<std::size_t>(row)] = 1;
  return {view(unit.full_gradient, rows), accumulate};
}

}  // namespace finetune::shard
