// SPDX-License-Identifier: Apache-2.0
#include "data/steps/stream.hpp"

#include <algorithm>

namespace finetune::data {
namespace {

/// More than a step has, so that numbers of rows do not depend on the batch's size.
constexpr std::int64_t rows_a_step = std::int64_t{1} << 20;

}  // namespace

std::vector<std::int64_t> Stream::batch(std::int64_t step) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> order;
  for (const std::int64_t i : sampler_.batch(step))
    order.emplace_back(-sequences_.positions(i), i);
  std::ranges::sort(order);
  std::vector<std::int64_t> batch;
  batch.reserve(order.size());
  for (const auto& [length, i] : order)
    batch.push_back(i);
  return batch;
}

StepData Stream::count(const std::vector<std::int64_t>& batch) const {
  StepData data;
  data.num_sequences = std::ssize(batch);
  std::int64_t used = 0;
  for (std::size_t k = 0; k < batch.size(); ++k) {
    const std::int64_t i = batch[k];
    data.num_samples += sequences_.num_samples(i);
    data.num_tokens += sequences_.num_tokens(i);
    data.num_trained_tokens += sequences_.num_targets(i);
    used += sequences_.positions(i);
    // The first of a micro-batch is its longest.
    if (k % static_cast<std::size_t>(grid_.size) != 0) continue;
    const std::int64_t rows =
        std::min(grid_.size, std::ssize(batch) - static_cast<std::int64_t>(k));
    data.num_positions += rows * padded_length(sequences_.positions(i), length_step);
  }
  data.num_padding = data.num_positions - used;
  return data;
}

StepData Stream::counts(std::int64_t step) const {
  return count(batch(step));
}

StepData Stream::step(std::int64_t step) const {
  const std::vector<std::int64_t> batch = this->batch(step);
  StepData data = count(batch);
  for (std::int64_t k = 0; k < grid_.num_micro_steps(std::ssize(batch)); ++k) {
    const auto rows = grid_.rows(batch, k);
    data.micro_steps.emplace_back();
    if (!rows) continue;
    data.micro_steps.back() = collate(sequences_, *rows, pad_id_, length_step, texts_);
    data.micro_steps.back()->first_row = step * rows_a_step + grid_.index(k) * grid_.size;
  }
  return data;
}

}  // namespace finetune::data
