// SPDX-License-Identifier: Apache-2.0
#include "optim/clip.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "kernels/composed.hpp"
#include "kernels/exact_squares.hpp"
#include "kernels/gpu_kernels.hpp"
#include "optim/detail/squares.hpp"
#include "shard/host_copy.hpp"

namespace finetune::optim {
namespace {

std::span<const float> values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

bool is_split_over_tp(const shard::ModelShards& shards) {
  const auto& tp = shards.groups().tp;
  return tp && tp->size() > 1;
}

/// Calls f(part) for this rank's gradients of a unit, without what another rank of tp counts.
template <typename F>
void for_each_counted(shard::ModelShards& shards, int unit, const F& f) {
  const at::Tensor gradient = shards.gradient(unit);
  if (!is_split_over_tp(shards)) return f(gradient);
  for (const plan::ShardSlice& slice : shards.map().slices(unit, shards.shard_of(unit))) {
    const auto& held = shards.table().row(slice.row).held;
    if (!held || held->holder == 0) f(gradient.narrow(0, slice.shard_offset, slice.count));
  }
}

/// Adds over the ranks that hold one copy of the model together: fsdp times tp.
double add_over_ranks(kernels::ExactSquares sum, const shard::ModelShards& shards) {
  std::int64_t in_range = sum.in_range;
  const auto add = [&](const comm::Communicator& ranks) {
    ranks.all_reduce(std::span(sum.limbs), comm::Reduce::sum);
    in_range = ranks.all_reduce(in_range, comm::Reduce::min);
    sum.normalize();
  };
  add(shards.fsdp());
  if (is_split_over_tp(shards)) add(shards.groups().tp->communicator());
  return in_range != 0 ? sum.value() : std::nan("");
}

double add_over_ranks(double sum, const shard::ModelShards& shards) {
  sum = shards.fsdp().all_reduce(sum, comm::Reduce::sum);
  if (!is_split_over_tp(shards)) return sum;
  return shards.groups().tp->communicator().all_reduce(sum, comm::Reduce::sum);
}

/// Kernels add exactly, and so does everyone where gradients are summed exactly.
bool is_exact_on_device(const shard::ModelShards& shards) {
  return shards.options().numbers.is_fixed_point() || kernels::compute_on(shards.options().device);
}

/// On the device: fp64 [1], or exact, int64 [SquareBins::num_values].
at::Tensor no_squares(const shard::ModelShards& shards) {
  const auto options = at::TensorOptions(at::kDouble).device(shards.options().device);
  return is_exact_on_device(shards)
             ? at::zeros({kernels::SquareBins::num_values}, options.dtype(at::kLong))
             : at::zeros({1}, options);
}

}  // namespace

GradientNorm::GradientNorm(shard::ModelShards& shards) : shards_(shards) {
  for (const int unit : shards.trained_units())
    add(unit);
  start();
}

void GradientNorm::add(int unit) {
  const bool is_on_host = shards_.options().device.is_cpu();
  if (!is_on_host && !by_device_.defined()) by_device_ = no_squares(shards_);
  for_each_counted(shards_, unit, [&](const at::Tensor& gradient) {
    if (is_on_host)
      by_host_.add(kernels::exact_squared_sum(values(gradient)));
    else if (is_exact_on_device(shards_))
      add_exact_squares(gradient, by_device_);
    else
      by_device_.add_(kernels::composed::squared_sum(gradient));
  });
}

void GradientNorm::start() {
  if (shards_.options().device.is_cpu()) return;
  if (!by_device_.defined()) by_device_ = no_squares(shards_);
  squares_.emplace(by_device_, shard::HostCopy::Contents::started);
}

double GradientNorm::wait() {
  double squares = 0;
  if (!squares_) {
    by_host_.normalize();
    squares = add_over_ranks(by_host_, shards_);
  } else if (squares_->wait(); is_exact_on_device(shards_)) {
    constexpr std::size_t count = kernels::SquareBins::num_values;
    const std::span<const std::int64_t, count> bins(squares_->host().const_data_ptr<std::int64_t>(),
                                                    count);
    squares = add_over_ranks(sum_of(kernels::SquareBins::from(bins)), shards_);
  } else {
    squares = add_over_ranks(*squares_->host().const_data_ptr<double>(), shards_);
  }
  // Replicas clip by one number: a copy that rounds otherwise would drift away from the others.
  const auto& copies = shards_.groups().dp_replicate->communicator();
  std::array<double, 1> agreed = {squares};
  copies.broadcast(std::as_writable_bytes(std::span(agreed)));
  return std::sqrt(agreed[0]);
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace finetune::optim
