#pragma once
// SPDX-License-Identifier: Apache-2.0
// Sequences made of samples: one each, or as many as fit.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "data/tokens/detail/dataset.hpp"

namespace finetune::data {

/// Positions that a sample of `length` tokens takes: its last token is only a target.
constexpr std::int64_t num_positions(std::int64_t length) {
  return length > 0 ? length - 1 : 0;
}

/// What a step draws: sequences of one or more samples of a dataset. Immutable.
class Sequences {
 public:
  /// Each sample is a sequence, in the dataset's order. Costs no memory.
  Sequences(Dataset dataset) : dataset_(std::move(dataset)) {}  // NOLINT: a dataset is sequences

  /// Samples fill sequences of `capacity` positions by best fit: longest first, those of equal
  /// length in the dataset's order, each into the fullest sequence that has room for it. What the
  /// result is depends on the lengths alone. Time: n log(capacity). Memory: eight bytes per sample
  /// and a sequence. Every sample takes capacity positions at most.
  /// Source: best-fit decreasing; Johnson et al. 1974 (SIAM J. Comput. 3): never more than 11/9 of
  /// the fewest sequences possible and four.
  static Sequences packed(Dataset dataset, std::int64_t capacity);

  /// The sequences of all, one after the other.
  static Sequences join(std::span<const Sequences> parts);

  /// The same sequences, longest first, those of equal length in order: micro-batches of
  /// neighbours need little padding.
  Sequences by_length() const;

  const Dataset& dataset() const { return dataset_; }
  std::int64_t size() const {
    return begins_.empty() ? dataset_.num_samples() : std::ssize(begins_) - 1;
  }

  // Of sequence i, 0 <= i < size().
  std::vector<std::int64_t> samples(std::int64_t i) const;
  std::int64_t num_samples(std::int64_t i) const;
  std::int64_t positions(std::int64_t i) const;    ///< without padding
  std::int64_t num_tokens(std::int64_t i) const;   ///< of its samples
  std::int64_t num_targets(std::int64_t i) const;  ///< see data::num_targets

 private:
  template <typename F>
  std::int64_t sum(std::int64_t i, const F& f) const;

  Dataset dataset_;
  std::vector<std::int64_t> samples_;  ///< of all sequences, in order; empty: one each
  std::vector<std::int64_t> begins_;   ///< size() + 1 places in samples_
};

}  // namespace finetune::data
