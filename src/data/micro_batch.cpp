// SPDX-License-Identifier: Apache-2.0
#include "data/micro_batch.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace finetune::data {
namespace {

std::int64_t divide_up(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

/// A row of one sample.
void add_stretches(MicroBatch& micro_batch, std::int64_t length) {
  if (length > 0) micro_batch.stretches.push_back({length, false});
  const std::int64_t padding = micro_batch.length - length;
  if (padding > 0) micro_batch.stretches.push_back({padding, true});
}

}  // namespace

std::int64_t MicroBatchGrid::num_micro_batches(std::int64_t global_batch) const {
  return divide_up(global_batch, size);
}

std::int64_t MicroBatchGrid::num_micro_steps(std::int64_t global_batch) const {
  return divide_up(num_micro_batches(global_batch), num_ranks);
}

std::optional<std::span<const std::int64_t>> MicroBatchGrid::samples(
    std::span<const std::int64_t> global_batch, std::int64_t micro_step) const {
  const std::int64_t begin = index(micro_step) * size;
  const std::int64_t count = std::min(size, std::ssize(global_batch) - begin);
  if (count <= 0) return std::nullopt;
  return global_batch.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

MicroBatch collate(const Dataset& dataset, std::span<const std::int64_t> indices,
                   std::int64_t pad_id, std::int64_t step) {
  core::check(!indices.empty(), "a micro-batch has samples");
  MicroBatch micro_batch;
  micro_batch.batch = std::ssize(indices);
  for (const std::int64_t i : indices)
    micro_batch.length = std::max(micro_batch.length, std::ssize(dataset.sample(i)) - 1);
  micro_batch.length = divide_up(micro_batch.length, step) * step;
  const auto count = static_cast<std::size_t>(micro_batch.batch * micro_batch.length);
  micro_batch.ids.assign(count, pad_id);
  micro_batch.labels.assign(count, not_trained);
  std::int64_t row = 0;
  for (const std::int64_t i : indices) {
    const std::span<const PackedToken> sample = dataset.sample(i);
    const auto begin = static_cast<std::size_t>(row++ * micro_batch.length);
    add_stretches(micro_batch, std::ssize(sample) - 1);
    for (std::size_t l = 0; l + 1 < sample.size(); ++l) {
      micro_batch.ids[begin + l] = sample[l].id();
      if (sample[l + 1].trained()) micro_batch.labels[begin + l] = sample[l + 1].id();
    }
  }
  return micro_batch;
}

}  // namespace finetune::data
