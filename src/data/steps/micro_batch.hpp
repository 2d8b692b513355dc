#pragma once
// SPDX-License-Identifier: Apache-2.0
// A global batch cut into micro-batches, and a micro-batch as padded arrays.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/steps/detail/packer.hpp"

namespace finetune::data {

/// Consecutive positions that may attend to each other, and to no others.
struct RowPart {
  std::int64_t length = 0;  ///< positions, at least 1
  bool is_padding = false;  ///< behind the samples of a row: nothing of it is trained

  bool operator==(const RowPart&) const = default;
};

/// Row-major [batch, length]. labels[b, l] is the target of position l, the token after it (already
/// shifted); not_trained = -100 where there is none.
struct MicroBatch {
  std::int64_t batch = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> labels;
  /// Of the rows one after the other: the samples of a row, each a stretch, then its padding if
  /// there is any. None crosses the end of a row; the lengths sum to batch * length.
  std::vector<RowPart> stretches = {};
  /// Of its first row: the same whichever rank has it, and no two rows of a run share one.
  std::int64_t first_row = 0;
};

/// How a global batch becomes micro-batches: micro-batch j is sequences [j * size, (j + 1) * size),
/// whichever rank computes it (the last may be smaller). Rank j % num_ranks takes it in micro-step
/// j / num_ranks. All ranks have the same number of micro-steps; in the last one some may have
/// nothing.
struct MicroBatchGrid {
  std::int64_t size = 1;       ///< sequences a micro-batch, train.micro_batch
  std::int64_t num_ranks = 1;  ///< ranks that share a global batch
  std::int64_t rank = 0;       ///< this one

  std::int64_t num_micro_batches(std::int64_t global_batch) const;
  std::int64_t num_micro_steps(std::int64_t global_batch) const;

  /// The micro-batch this rank computes in `micro_step`: its number j.
  std::int64_t index(std::int64_t micro_step) const { return micro_step * num_ranks + rank; }

  /// Its sequences, out of those of the global batch; nothing if there is no such micro-batch.
  std::optional<std::span<const std::int64_t>> rows(std::span<const std::int64_t> global_batch,
                                                    std::int64_t micro_step) const;
};

/// Lengths of micro-batches are multiples of this: libraries compile and keep a product for every
/// shape they meet (on the quickstart's lengths of 20 to 104, hundreds of MiB), and whole tiles
/// cost no more than parts of them.
inline constexpr std::int64_t length_step = 8;

/// `positions` rounded up to a multiple of `step`.
constexpr std::int64_t padded_length(std::int64_t positions, std::int64_t step) {
  return (positions + step - 1) / step * step;
}

/// What a sample is: one text, or two of which each ends in a label (data/text/format.hpp).
enum class SampleTexts { one, two };

/// The sequences with these indices, a row each, padded at the end with `pad_id` and not_trained:
/// to the longest of them, rounded up to a multiple of `step`. A sample of n tokens takes n - 1
/// positions: its last token is only a target. Two texts are a stretch each, and n - 2 positions.
MicroBatch collate(const Sequences& sequences, std::span<const std::int64_t> indices,
                   std::int64_t pad_id, std::int64_t step = 1,
                   SampleTexts texts = SampleTexts::one);

}  // namespace finetune::data
