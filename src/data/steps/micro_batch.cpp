// SPDX-License-Identifier: Apache-2.0
#include "data/steps/micro_batch.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace finetune::data {
namespace {

std::int64_t divide_up(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

/// Writes a sample at position `begin` of the flattened rows; returns the position behind it.
std::size_t add_sample(MicroBatch& micro_batch, std::span<const PackedToken> sample,
                       std::size_t begin) {
  const std::int64_t length = num_positions(std::ssize(sample));
  if (length == 0) return begin;  // nothing of it can be predicted
  for (std::size_t l = 0; l + 1 < sample.size(); ++l) {
    micro_batch.ids[begin + l] = sample[l].id();
    if (sample[l + 1].trained()) micro_batch.labels[begin + l] = sample[l + 1].id();
  }
  micro_batch.stretches.push_back({length, false});
  return begin + static_cast<std::size_t>(length);
}

/// The same of two texts.
std::size_t add_two(MicroBatch& micro_batch, std::span<const PackedToken> sample,
                    std::size_t begin) {
  const auto first =
      std::ranges::find_if(sample, [](PackedToken token) { return token.trained(); });
  const auto length = static_cast<std::size_t>(first - sample.begin()) + 1;
  core::check(length > 1 && length < sample.size(), "a pair has two texts with a label each");
  return add_sample(micro_batch, sample.subspan(length),
                    add_sample(micro_batch, sample.first(length), begin));
}

}  // namespace

std::int64_t MicroBatchGrid::num_micro_batches(std::int64_t global_batch) const {
  return divide_up(global_batch, size);
}

std::int64_t MicroBatchGrid::num_micro_steps(std::int64_t global_batch) const {
  return divide_up(num_micro_batches(global_batch), num_ranks);
}

std::optional<std::span<const std::int64_t>> MicroBatchGrid::rows(
    std::span<const std::int64_t> global_batch, std::int64_t micro_step) const {
  const std::int64_t begin = index(micro_step) * size;
  const std::int64_t count = std::min(size, std::ssize(global_batch) - begin);
  if (count <= 0) return std::nullopt;
  return global_batch.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

MicroBatch collate(const Sequences& sequences, std::span<const std::int64_t> indices,
                   std::int64_t pad_id, std::int64_t step, SampleTexts texts) {
  core::check(!indices.empty(), "a micro-batch has samples");
  MicroBatch micro_batch;
  micro_batch.batch = std::ssize(indices);
  for (const std::int64_t i : indices)
    micro_batch.length = std::max(micro_batch.length, sequences.positions(i));
  micro_batch.length = padded_length(micro_batch.length, step);
  const auto row_length = static_cast<std::size_t>(micro_batch.length);
  micro_batch.ids.assign(indices.size() * row_length, pad_id);
  micro_batch.labels.assign(indices.size() * row_length, not_trained);
  for (std::size_t row = 0; row < indices.size(); ++row) {
    std::size_t at = row * row_length;
    for (const std::int64_t sample : sequences.samples(indices[row]))
      at = (texts == SampleTexts::two ? add_two : add_sample)(
          micro_batch, sequences.dataset().sample(sample), at);
    const std::size_t padding = (row + 1) * row_length - at;
    if (padding > 0) micro_batch.stretches.push_back({static_cast<std::int64_t>(padding), true});
  }
  return micro_batch;
}

}  // namespace finetune::data
