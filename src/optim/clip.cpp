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

double exact_squares(shard::ModelShards& shards) {
  kernels::ExactSquares sum;
  for (const int unit : shards.trained_units()) {
    const shard::HostCopy gradient(shards.gradient(unit));
    sum.add(kernels::exact_squared_sum(values(gradient.host())));
  }
  sum.normalize();
  shards.fsdp().all_reduce(std::span(sum.limbs), comm::Reduce::sum);
  const bool in_range =
      shards.fsdp().all_reduce(std::int64_t{sum.in_range}, comm::Reduce::min) != 0;
  sum.normalize();
  return in_range ? sum.value() : std::nan("");
}

/// fp64 [1] on the device.
at::Tensor squares_by_device(shard::ModelShards& shards) {
  at::Tensor sum = at::zeros({1}, at::TensorOptions(at::kDouble).device(shards.options().device));
  for (const int unit : shards.trained_units())
    sum.add_(kernels::composed::squared_sum(shards.gradient(unit)));
  return sum;
}

bool is_exact(const shard::Options& options) {
  return options.device.is_cpu() || options.numbers.is_fixed_point();
}

}  // namespace

GradientNorm::GradientNorm(shard::ModelShards& shards) : shards_(shards) {
  if (!is_exact(shards.options()))
    squares_.emplace(squares_by_device(shards), shard::HostCopy::Contents::started);
}

double GradientNorm::wait() {
  double squares = 0;
  if (squares_) {
    squares_->wait();
    squares =
        shards_.fsdp().all_reduce(*squares_->host().const_data_ptr<double>(), comm::Reduce::sum);
  } else {
    squares = exact_squares(shards_);
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
