// SPDX-License-Identifier: Apache-2.0
#include "optim/clip.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "kernels/composed.hpp"
#include "kernels/exact_squares.hpp"
#include "shard/host_copy.hpp"

namespace finetune::optim {
namespace {

std::span<const float> values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

/// Of this rank's gradients, on the host.
kernels::ExactSquares squares_by_host(shard::ModelShards& shards) {
  kernels::ExactSquares sum;
  for (const int unit : shards.trained_units())
    sum.add(kernels::exact_squared_sum(values(shards.gradient(unit))));
  sum.normalize();
  return sum;
}

double add_over_ranks(kernels::ExactSquares sum, const comm::Communicator& fsdp) {
  fsdp.all_reduce(std::span(sum.limbs), comm::Reduce::sum);
  const bool in_range = fsdp.all_reduce(std::int64_t{sum.in_range}, comm::Reduce::min) != 0;
  sum.normalize();
  return in_range ? sum.value() : std::nan("");
}

/// On the device: fp64 [1], or exact, int64 [SquareBins::num_values].
at::Tensor squares_by_device(shard::ModelShards& shards, bool is_exact) {
  const auto options = at::TensorOptions(at::kDouble).device(shards.options().device);
  at::Tensor sum = is_exact ? at::zeros({kernels::SquareBins::num_values}, options.dtype(at::kLong))
                            : at::zeros({1}, options);
  for (const int unit : shards.trained_units()) {
    if (is_exact)
      kernels::composed::add_exact_squares_(sum, shards.gradient(unit));
    else
      sum.add_(kernels::composed::squared_sum(shards.gradient(unit)));
  }
  return sum;
}

}  // namespace

GradientNorm::GradientNorm(shard::ModelShards& shards) : shards_(shards) {
  if (shards.options().device.is_cpu()) return;
  squares_.emplace(squares_by_device(shards, shards.options().numbers.is_fixed_point()),
                   shard::HostCopy::Contents::started);
}

double GradientNorm::wait() {
  const comm::Communicator& fsdp = shards_.fsdp();
  double squares = 0;
  if (!squares_) {
    squares = add_over_ranks(squares_by_host(shards_), fsdp);
  } else if (squares_->wait(); shards_.options().numbers.is_fixed_point()) {
    constexpr std::size_t count = kernels::SquareBins::num_values;
    const std::span<const std::int64_t, count> bins(squares_->host().const_data_ptr<std::int64_t>(),
                                                    count);
    squares = add_over_ranks(sum_of(kernels::SquareBins::from(bins)), fsdp);
  } else {
    squares = fsdp.all_reduce(*squares_->host().const_data_ptr<double>(), comm::Reduce::sum);
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
