// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/gradients.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/memory_use.hpp"
#include "kernels/fixed_point.hpp"
#include "kernels/gpu_kernels.hpp"
#include "shard/wire.hpp"

namespace finetune::shard {
namespace {

core::DType sum_dtype(const plan::Numbers& numbers) {
  return numbers.is_fixed_point() ? core::DType::i64 : core::DType::f32;
}

core::DType wire_dtype(const plan::Numbers& numbers) {
  return numbers.is_fixed_point() ? core::DType::i64 : numbers.reduce;
}

}  // namespace

Gradients::Gradients(const plan::ShardMap& map, const Groups& groups, const Options& options)
    : map_(map),
      groups_(groups),
      options_(options),
      sums_in_place_(!groups.gathers() && options.numbers.compute == core::DType::f32 &&
                     !options.numbers.is_fixed_point() && !options.numbers.keeps_passes_apart),
      sums_(map.units().size()),
      has_sum_(map.units().size(), 0),
      pool_(to_aten(options.numbers.compute), options.device,
            groups.told_of_buffers(options.registers_buffers)),
      packs_by_kernels_(!options.device.is_cpu() && options.numbers.is_fixed_point() &&
                        kernels::compute_on(options.device)) {
  limit_ = largest_term(1);
}

void Gradients::make_sum(int unit) {
  // Made when first needed: a model that only generates has no gradients.
  if (sum(unit).defined()) return;
  const core::MemoryScope scope(core::MemoryUse::gradients);
  sum(unit) = at::zeros(
      {shard_size(unit)},
      at::TensorOptions().dtype(to_aten(sum_dtype(options_.numbers))).device(options_.device));
}

at::Tensor Gradients::take_buffer(int unit) {
  make_sum(unit);
  if (sums_in_place_) return sum(unit);
  // One buffer is on its way while the next is filled.
  while (on_their_way_.size() >= 2)
    arrive();
  const core::MemoryScope scope(core::MemoryUse::gradients);
  return pool_.take(map_.unit(unit).padded_count());
}

void Gradients::reduce(int unit, at::Tensor buffer, Pass pass) {
  const bool is_first = !has_sum(unit);
  const bool is_alone = !groups_.gathers(map_.unit(unit));
  has_sum_[static_cast<std::size_t>(unit)] = 1;
  if (!sums_in_place_) {
    if (is_alone) {
      add_alone(unit, buffer, is_first);
      pool_.put(std::move(buffer));
    } else {
      if (is_first) sum(unit).zero_();
      options_.device.is_cpu() ? start_on_host(unit, std::move(buffer))
                               : start_on_device(unit, std::move(buffer));
    }
  }
  if (is_alone && pass == Pass::last) start_over_replicas(unit);
  if (!is_alone) on_their_way_.back().is_last = pass == Pass::last;
  while (!options_.overlap && !on_their_way_.empty())
    arrive();
}

void Gradients::add_alone(int unit, const at::Tensor& buffer, bool is_first) {
  if (!options_.device.is_cpu()) {
    if (is_first) sum(unit).zero_();
    return add_alone_on_device(unit, buffer);
  }
  const std::int64_t bad = add(buffer, options_.numbers, limit_, is_first, sum(unit));
  if (bad >= 0) note(unit, bad, buffer[bad].item<float>());
}

void Gradients::add_alone_on_device(int unit, const at::Tensor& buffer) {
  if (packs_by_kernels_) return add_on_device(buffer, limit_, sum(unit), found(unit));
  sum(unit).add_(options_.numbers.is_fixed_point() ? to_wire_on_device(unit, buffer) : buffer);
}

void Gradients::start_on_host(int unit, at::Tensor buffer) {
  const std::int64_t shard_size = this->shard_size(unit);
  const plan::Numbers& numbers = options_.numbers;
  comm::Exchange exchange{.count = shard_size,
                          .element_bytes = numbers.wire_bytes(),
                          .sum_bytes = numbers.sum_bytes(),
                          .order = numbers.is_fixed_point() ? comm::Order::any : comm::Order::fixed,
                          .sums = static_cast<std::byte*>(sum(unit).data_ptr())};
  exchange.pack = [this, unit, buffer, shard_size](int to, std::int64_t offset, std::int64_t n,
                                                   std::byte* wire) {
    const std::int64_t first = to * shard_size + offset;
    const std::int64_t bad = pack(buffer, first, n, options_.numbers, limit_, wire);
    if (bad >= 0) note(unit, bad, buffer[bad].item<float>());
  };
  exchange.add = [this, kept = sum(unit)](const std::byte* wire, std::int64_t n, std::byte* sums) {
    add(wire, n, options_.numbers, sums);
  };
  const comm::Ticket ticket = group_of(unit).exchange(std::move(exchange));
  on_their_way_.push_back({.unit = unit, .ticket = ticket, .buffer = std::move(buffer)});
}

at::Tensor Gradients::to_wire_on_device(int unit, const at::Tensor& gradient) {
  if (!options_.numbers.is_fixed_point()) return gradient.to(to_aten(options_.numbers.reduce));
  if (packs_by_kernels_) {
    at::Tensor wire = at::empty(gradient.sizes(), gradient.options().dtype(at::kLong));
    pack_on_device(gradient, limit_, wire, found(unit));
    return wire;
  }
  const at::Tensor scaled = gradient.to(at::kDouble).mul_(std::ldexp(1.0, fixed_point_bits));
  // Looked at when the step ends, and the host has waited.
  checks_.emplace_back(unit, find_bad(gradient, scaled, std::ldexp(limit_, fixed_point_bits)));
  return scaled.round_().to(at::kLong);
}

void Gradients::start_on_device(int unit, at::Tensor buffer) {
  at::Tensor wire = to_wire_on_device(unit, buffer);
  if (wire.data_ptr() != buffer.data_ptr()) {
    pool_.put(std::move(buffer));
    buffer = at::Tensor();
  }
  at::Tensor terms = at::empty({sum(unit).numel()}, wire.options());
  const comm::Ticket ticket = group_of(unit).reduce_scatter(
      wire_dtype(options_.numbers), wire.data_ptr(), terms.data_ptr(), terms.numel());
  on_their_way_.push_back({.unit = unit,
                           .ticket = ticket,
                           .buffer = std::move(buffer),
                           .wire = std::move(wire),
                           .terms = std::move(terms)});
}

void Gradients::arrive() {
  OnItsWay& oldest = on_their_way_.front();
  group_of(oldest.unit).wait(oldest.ticket);
  if (oldest.terms.defined()) sum(oldest.unit).add_(oldest.terms);
  if (oldest.buffer.defined()) pool_.put(std::move(oldest.buffer));
  const int unit = oldest.unit;
  const bool is_last = oldest.is_last;
  on_their_way_.pop_front();
  if (is_last) start_over_replicas(unit);
}

void Gradients::start_over_replicas(int unit) {
  if (!groups_.has_replicas()) return;
  comm::Group& group = *groups_.dp_replicate;
  OnItsWay way{.unit = unit};
  at::Tensor values = sum(unit);
  const core::MemoryScope scope(core::MemoryUse::communication);
  if (sum_dtype(options_.numbers) != wire_dtype(options_.numbers))
    values = way.terms = values.to(to_aten(options_.numbers.reduce));
  way.ticket = group.all_reduce(wire_dtype(options_.numbers), values.data_ptr(), values.numel());
  over_replicas_.push_back(std::move(way));
}

void Gradients::finish() {
  while (!on_their_way_.empty())
    arrive();
  for (OnItsWay& way : over_replicas_) {
    groups_.dp_replicate->wait(way.ticket);
    if (way.terms.defined()) sum(way.unit).copy_(way.terms);
  }
  over_replicas_.clear();
  start_checks();
}

void Gradients::finish(int unit) {
  const auto is_its = [&](const OnItsWay& way) { return way.unit == unit; };
  while (std::ranges::any_of(on_their_way_, is_its))
    arrive();
  const auto way = std::ranges::find_if(over_replicas_, is_its);
  if (way == over_replicas_.end()) return;
  groups_.dp_replicate->wait(way->ticket);
  if (way->terms.defined()) sum(unit).copy_(way->terms);
  over_replicas_.erase(way);
}

void Gradients::release(int unit) {
  sum(unit) = at::Tensor();
  has_sum_[static_cast<std::size_t>(unit)] = 0;
}

at::Tensor Gradients::found(int unit) {
  if (!found_.defined())
    found_ = at::full({std::ssize(sums_)}, kernels::FirstOutOfRange::none,
                      at::TensorOptions(at::kLong).device(options_.device));
  if (std::ranges::find(packed_units_, unit) == packed_units_.end()) packed_units_.push_back(unit);
  found_copy_.reset();  // what a copy has is not all
  return found_.narrow(0, unit, 1);
}

void Gradients::start_checks() {
  if (found_.defined() && !found_copy_) found_copy_.emplace(found_, HostCopy::Contents::started);
  if (checks_.empty()) return;
  std::vector<int> units;
  std::vector<at::Tensor> good, element, value;
  for (const auto& [unit, found] : checks_) {
    units.push_back(unit);
    good.push_back(found.is_good);
    element.push_back(found.element);
    value.push_back(found.value);
  }
  using Contents = HostCopy::Contents;
  started_checks_.push_back({std::move(units), HostCopy(at::cat(good), Contents::started),
                             HostCopy(at::cat(element), Contents::started),
                             HostCopy(at::cat(value), Contents::started)});
  checks_.clear();
}

void Gradients::look_at_checks() {
  if (found_copy_) {
    found_copy_->wait();
    for (const int unit : packed_units_)
      if (const auto first = kernels::FirstOutOfRange::from(
              found_copy_->host().const_data_ptr<std::int64_t>()[unit]))
        note(unit, first->element, first->value);
  }
  for (StartedChecks& checks : started_checks_) {
    for (HostCopy* copy : {&checks.is_good, &checks.element, &checks.value})
      copy->wait();
    for (std::size_t i = 0; i < checks.units.size(); ++i) {
      if (checks.is_good.host().const_data_ptr<bool>()[i]) continue;
      const auto at = static_cast<std::int64_t>(i);
      note(checks.units[i], checks.element.host().const_data_ptr<std::int64_t>()[i],
           checks.value.host()[at].item<float>());
    }
  }
  started_checks_.clear();
}

void Gradients::reset(std::int64_t num_terms) {
  finish();
  std::fill(has_sum_.begin(), has_sum_.end(), 0);
  limit_ = largest_term(num_terms);
  started_checks_.clear();
  found_copy_.reset();
  found_ = at::Tensor();
  packed_units_.clear();
  const std::lock_guard lock(mutex_);
  out_of_range_.reset();
}

at::Tensor Gradients::gradient(int unit) {
  make_sum(unit);
  if (!options_.numbers.is_fixed_point()) return sum(unit);
  const std::int64_t count = sum(unit).numel();
  const core::MemoryScope scope(core::MemoryUse::gradients);
  if (!scratch_.defined() || scratch_.numel() < count)
    scratch_ = at::empty({count}, at::TensorOptions().dtype(at::kFloat).device(options_.device));
  at::Tensor gradient = scratch_.narrow(0, 0, count);
  if (kernels::compute_on(options_.device)) {
    const auto n = static_cast<std::size_t>(count);
    kernels::from_fixed({sum(unit).const_data_ptr<std::int64_t>(), n}, fixed_point_bits,
                        {gradient.data_ptr<float>(), n}, kernels::place_on(options_.device));
  } else {
    gradient.copy_(sum(unit).to(at::kDouble).mul_(std::ldexp(1.0, -fixed_point_bits)));
  }
  return gradient;
}

void Gradients::note(int unit, std::int64_t element, float value) {
  const std::lock_guard lock(mutex_);
  if (!out_of_range_) out_of_range_ = OutOfRange{unit, element, value};
}

std::optional<OutOfRange> Gradients::out_of_range() {
  look_at_checks();
  const std::lock_guard lock(mutex_);
  return out_of_range_;
}

}  // namespace finetune::shard
