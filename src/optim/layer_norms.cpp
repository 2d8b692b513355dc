// SPDX-License-Identifier: Apache-2.0
#include "optim/layer_norms.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "optim/detail/squares.hpp"

namespace finetune::optim {
namespace {

using kernels::ExactSquares;
using kernels::SquareBins;

std::size_t weight_of(int stage) {
  return 2 * static_cast<std::size_t>(stage);
}
std::size_t gradient_of(int stage) {
  return weight_of(stage) + 1;
}

int count_stages(const model::ParameterTable& table) {
  int last = 0;
  for (const model::Parameter& row : table.rows)
    last = std::max(last, row.stage);
  return last + 1;
}

/// Adds each of `sums` over `ranks`.
void add_over(const comm::Communicator& ranks, std::vector<ExactSquares>& sums) {
  std::vector<std::int64_t> limbs, in_range;
  for (const ExactSquares& sum : sums) {
    limbs.insert(limbs.end(), sum.limbs.begin(), sum.limbs.end());
    in_range.push_back(sum.in_range);
  }
  ranks.all_reduce(std::span(limbs), comm::Reduce::sum);
  ranks.all_reduce(std::span(in_range), comm::Reduce::min);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::size_t count = sums[i].limbs.size();
    std::ranges::copy(std::span(limbs).subspan(i * count, count), sums[i].limbs.begin());
    sums[i].in_range = in_range[i] != 0;
    sums[i].normalize();
  }
}

double norm_of(const ExactSquares& sum) {
  return sum.in_range ? std::sqrt(sum.value()) : std::nan("");
}

}  // namespace

LayerNormSums::LayerNormSums(shard::ModelShards& shards)
    : shards_(shards),
      is_trained_(static_cast<std::size_t>(count_stages(shards.table()))),
      by_host_(2 * is_trained_.size()) {
  const at::Device device = shards.options().device;
  if (!device.is_cpu())
    bins_ = at::zeros({std::ssize(by_host_), static_cast<std::int64_t>(SquareBins::num_values)},
                      at::TensorOptions(at::kLong).device(device));
  for (const int unit : shards.trained_units()) {
    const at::Tensor master = shards.master(unit);
    const at::Tensor gradient = shards.gradient(unit);
    for (const plan::ShardSlice& slice : shards.map().slices(unit, shards.shard_of(unit))) {
      const model::Parameter& row = shards.table().row(slice.row);
      if (row.held && row.held->holder != 0) continue;  // another rank of tp counts it
      add(master.narrow(0, slice.shard_offset, slice.count), weight_of(row.stage));
      add(gradient.narrow(0, slice.shard_offset, slice.count), gradient_of(row.stage));
    }
  }
  for (const model::Parameter& row : shards.table().rows)
    if (row.trainable) is_trained_[static_cast<std::size_t>(row.stage)] = 1;
  if (bins_.defined()) by_device_.emplace(bins_, shard::HostCopy::Contents::started);
}

void LayerNormSums::add(const at::Tensor& values, std::size_t index) {
  // In pieces: what is kept in bf16 is copied on the way.
  constexpr std::int64_t most_elements = 1 << 20;
  for (std::int64_t first = 0; first < values.numel(); first += most_elements) {
    const at::Tensor piece =
        values.narrow(0, first, std::min(most_elements, values.numel() - first)).to(at::kFloat);
    if (piece.is_cpu()) {
      by_host_[index].add(kernels::exact_squared_sum(
          {piece.const_data_ptr<float>(), static_cast<std::size_t>(piece.numel())}));
    } else {
      add_exact_squares(piece, bins_[static_cast<std::int64_t>(index)]);
    }
  }
}

std::vector<LayerNorm> LayerNormSums::wait() {
  if (by_device_) {
    by_device_->wait();
    const std::span<const std::int64_t> bins(by_device_->host().const_data_ptr<std::int64_t>(),
                                             by_host_.size() * SquareBins::num_values);
    for (std::size_t i = 0; i < by_host_.size(); ++i)
      by_host_[i].add(sum_of(SquareBins::from(
          bins.subspan(i * SquareBins::num_values).first<SquareBins::num_values>())));
  }
  add_over(shards_.fsdp(), by_host_);
  if (const auto& tp = shards_.groups().tp; tp && tp->size() > 1)
    add_over(tp->communicator(), by_host_);
  std::vector<LayerNorm> norms;
  for (int stage = 0; stage < static_cast<int>(is_trained_.size()); ++stage)
    if (is_trained_[static_cast<std::size_t>(stage)] != 0)
      norms.push_back({.stage = stage,
                       .weight = norm_of(by_host_[weight_of(stage)]),
                       .gradient = norm_of(by_host_[gradient_of(stage)])});
  return norms;
}

}  // namespace finetune::optim
