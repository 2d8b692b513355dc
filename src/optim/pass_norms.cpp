// SPDX-License-Identifier: Apache-2.0
#include "optim/pass_norms.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "optim/detail/squares.hpp"
#include "optim/trained_rows.hpp"

namespace finetune::optim {

using kernels::SquareBins;

PassSquares::PassSquares(shard::ModelShards& shards, std::int64_t num_passes)
    : shards_(shards), by_host_(static_cast<std::size_t>(num_passes)) {
  const at::Device device = shards.options().device;
  if (!device.is_cpu())
    bins_ = at::zeros({num_passes, static_cast<std::int64_t>(SquareBins::num_values)},
                      at::TensorOptions(at::kLong).device(device));
  shards.look_at_gradients([this](int unit, const at::Tensor& gradient) { add(unit, gradient); });
}

void PassSquares::add(int unit, const at::Tensor& gradient) {
  const plan::UnitLayout& layout = shards_.map().unit(unit);
  for (std::size_t i = 0; i < layout.rows.size(); ++i) {
    const model::Parameter& row = shards_.table().row(layout.rows[i]);
    const plan::ShardSlice part = trained_part(row, {.row = layout.rows[i],
                                                     .tensor_offset = 0,
                                                     .shard_offset = layout.offsets[i],
                                                     .count = row.count()});
    if (row.trainable && part.count > 0) add(gradient.narrow(0, part.shard_offset, part.count));
  }
}

void PassSquares::add(const at::Tensor& values) {
  // In pieces: what is computed in 16 bits is copied on the way.
  constexpr std::int64_t most_elements = 1 << 18;
  for (std::int64_t first = 0; first < values.numel(); first += most_elements) {
    const at::Tensor piece =
        values.narrow(0, first, std::min(most_elements, values.numel() - first)).to(at::kFloat);
    if (piece.is_cpu()) {
      by_host_[pass_].add(kernels::exact_squared_sum(
          {piece.const_data_ptr<float>(), static_cast<std::size_t>(piece.numel())}));
    } else {
      add_exact_squares(piece, bins_[static_cast<std::int64_t>(pass_)]);
    }
  }
}

std::vector<double> PassSquares::wait() {
  std::vector<double> squares;
  std::optional<shard::HostCopy> copy;
  if (bins_.defined()) {
    copy.emplace(bins_, shard::HostCopy::Contents::started);
    copy->wait();
  }
  for (std::size_t i = 0; i < by_host_.size(); ++i) {
    kernels::ExactSquares& sum = by_host_[i];
    if (copy) {
      const std::span<const std::int64_t> all(copy->host().const_data_ptr<std::int64_t>(),
                                              by_host_.size() * SquareBins::num_values);
      sum.add(sum_of(SquareBins::from(
          all.subspan(i * SquareBins::num_values).first<SquareBins::num_values>())));
    }
    sum.normalize();
    squares.push_back(sum.in_range ? sum.value() : std::nan(""));
  }
  return squares;
}

}  // namespace finetune::optim
