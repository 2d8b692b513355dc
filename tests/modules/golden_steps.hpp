#pragma once
// SPDX-License-Identifier: Apache-2.0
// The micro-batches of the reference trajectories (tests/golden/train), dealt to the ranks.

#include <algorithm>
#include <optional>
#include <vector>

#include "data/steps/stream.hpp"
#include "support/golden.hpp"
#include "support/ranks.hpp"

namespace finetune::tests {

inline constexpr std::int64_t golden_length = 32;
inline constexpr std::int64_t micro_size = 2;
inline constexpr std::int64_t accumulation = 2;

inline data::MicroBatch micro_batch(const weights::ModelFiles& data, std::int64_t index,
                                    std::int64_t first_row, std::int64_t num_rows) {
  data::MicroBatch batch{.batch = num_rows, .length = golden_length - 1, .ids = {}, .labels = {}};
  for (std::int64_t row = first_row; row < first_row + num_rows; ++row) {
    const std::int64_t offset = (index * micro_size + row) * golden_length;
    const auto ids = read_golden<std::int64_t>(data, "input_ids", offset, golden_length - 1);
    const auto labels = read_golden<std::int64_t>(data, "labels", offset + 1, golden_length - 1);
    batch.ids.insert(batch.ids.end(), ids.begin(), ids.end());
    batch.labels.insert(batch.labels.end(), labels.begin(), labels.end());
  }
  return batch;
}

inline std::int64_t num_targets(const data::MicroBatch& batch) {
  return std::ranges::count_if(batch.labels, [](std::int64_t label) { return label >= 0; });
}

/// The step's two golden micro-batches, cut further into pieces of `size` rows and dealt to the
/// ranks that see different samples.
inline data::StepData step_data(const weights::ModelFiles& files, std::int64_t step,
                                std::int64_t size,
                                const comm::Communicator& batch = tests::world()) {
  data::StepData data;
  std::vector<data::MicroBatch> pieces;
  for (std::int64_t micro = 0; micro < accumulation; ++micro) {
    for (std::int64_t row = 0; row < micro_size; row += size) {
      pieces.push_back(micro_batch(files, accumulation * step + micro, row, size));
    }
  }
  data.num_samples = accumulation * micro_size;
  for (const auto& piece : pieces)
    data.num_trained_tokens += num_targets(piece);
  for (std::size_t first = 0; first < pieces.size();
       first += static_cast<std::size_t>(batch.size())) {
    const std::size_t mine = first + static_cast<std::size_t>(batch.rank());
    data.micro_steps.push_back(mine < pieces.size() ? std::optional(pieces[mine]) : std::nullopt);
  }
  return data;
}

}  // namespace finetune::tests
