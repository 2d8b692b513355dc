// SPDX-License-Identifier: Apache-2.0
#include "shard/model_shards.hpp"

#include "core/error.hpp"

namespace finetune::shard {
namespace {

core::DType to_core(at::ScalarType dtype) {
  return dtype == at::kFloat ? core::DType::f32 : core::DType::bf16;
}

}  // namespace

ModelShards::ModelShards(const model::ParameterTable& table, const plan::ShardMap& map,
                         const comm::Communicator& fsdp, at::ScalarType compute_dtype)
    : table_(table),
      map_(map),
      fsdp_(fsdp),
      compute_dtype_(compute_dtype),
      written_(table.rows.size(), 0),
      compute_pool_(compute_dtype),
      float_pool_(at::kFloat) {
  core::check(map.num_shards() == fsdp.size(), "the shard map was made for the fsdp communicator");
  for (const plan::UnitLayout& layout : map.units()) {
    Unit unit;
    // Zeroed: padding takes part in norms and must not be garbage.
    unit.master = at::zeros({layout.shard_size}, at::kFloat);
    unit.published =
        compute_dtype == at::kFloat ? unit.master : at::zeros({layout.shard_size}, compute_dtype);
    units_.push_back(std::move(unit));
  }
}

void ModelShards::publish(int unit) {
  Unit& u = at(unit);
  core::check(u.num_open == 0, "weights change only while their unit is closed");
  if (compute_dtype_ != at::kFloat) u.published.copy_(u.master);
}

void ModelShards::publish_all() {
  for (int unit = 0; unit < num_units(); ++unit)
    publish(unit);
}

void ModelShards::open(int unit) {
  Unit& u = at(unit);
  if (u.num_open++ > 0) return;
  if (is_alone()) {
    u.full = u.published;
    return;
  }
  const std::int64_t shard_size = u.published.numel();
  u.full = compute_pool_.take(shard_size * fsdp_.size());
  fsdp_.all_gather(to_core(compute_dtype_), u.published.data_ptr(), u.full.data_ptr(), shard_size);
}

void ModelShards::close(int unit) {
  Unit& u = at(unit);
  core::check(u.num_open > 0, "a unit is closed as often as it is opened");
  if (--u.num_open > 0) return;
  if (!is_alone()) compute_pool_.put(u.full);
  u.full = at::Tensor();
}

void ModelShards::open_gradient(int unit) {
  Unit& u = at(unit);
  if (u.gradient_is_open) return;
  u.gradient_is_open = true;
  // Made when first needed: a model that only generates has no gradients.
  if (!u.gradient_sum.defined()) u.gradient_sum = at::zeros_like(u.master);
  if (sums_in_place()) {
    u.full_gradient = u.gradient_sum;
    return;
  }
  u.full_gradient = compute_pool_.take(u.published.numel() * fsdp_.size());
  for (const int row : map_.units()[static_cast<std::size_t>(unit)].rows)
    written_[static_cast<std::size_t>(row)] = 0;
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

void ModelShards::add_to_sum(Unit& unit, const at::Tensor& gradient_shard) {
  if (unit.has_sum) {
    unit.gradient_sum.add_(gradient_shard);
  } else {
    unit.gradient_sum.copy_(gradient_shard);
  }
  unit.has_sum = true;
}

void ModelShards::reduce_gradient(int unit) {
  Unit& u = at(unit);
  core::check(u.gradient_is_open, "only an open gradient is reduced");
  zero_unwritten(unit);
  u.gradient_is_open = false;
  at::Tensor full = std::move(u.full_gradient);
  u.full_gradient = at::Tensor();
  if (sums_in_place()) {
    u.has_sum = true;
    return;
  }
  if (is_alone()) {
    add_to_sum(u, full);
    compute_pool_.put(full);
    return;
  }
  // Gradients cross the network and are summed in fp32, whatever they were computed in.
  at::Tensor wide = full;
  if (compute_dtype_ != at::kFloat) {
    wide = float_pool_.take(full.numel());
    wide.copy_(full);
    compute_pool_.put(full);
  }
  at::Tensor shard = float_pool_.take(u.gradient_sum.numel());
  fsdp_.reduce_scatter(wide.data_ptr<float>(), shard.data_ptr<float>(), shard.numel());
  add_to_sum(u, shard);
  float_pool_.put(shard);
  (compute_dtype_ == at::kFloat ? compute_pool_ : float_pool_).put(wide);
}

void ModelShards::reset_gradients() {
  for (Unit& unit : units_)
    unit.has_sum = false;
  std::fill(written_.begin(), written_.end(), 0);
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
  const Unit& unit = at(map_.unit_of(rows.first));
  core::check(unit.num_open > 0, "weights are read while their unit is open");
  return view(unit.full, rows);
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
