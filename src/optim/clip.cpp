// SPDX-License-Identifier: Apache-2.0
#include "optim/clip.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/reduce.hpp"

namespace finetune::optim {

double gradient_norm(const shard::ModelShards& shards) {
  double squares = 0;
  for (int unit = 0; unit < shards.num_units(); ++unit) {
    const at::Tensor gradient = shards.gradient_sum(unit);
    squares += kernels::squared_sum(std::span<const float>(
        gradient.const_data_ptr<float>(), static_cast<std::size_t>(gradient.numel())));
  }
  return std::sqrt(shards.fsdp().all_reduce(squares, comm::Reduce::sum));
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace finetune::optim
