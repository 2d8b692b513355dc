#pragma once
// SPDX-License-Identifier: Apache-2.0
// Sequences made of samples: one each, or as many as fit.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "data/tokens/detail/dataset.hpp"

namespace finetune::data {

/// Positions that a sample of `length` tokens takes: its last token is only a target.
constexpr std::int64_t num_positions(std::int64_t length) {
  return length > 0 ? length - 1 : 0;
}

/// Samples of each sequence of a packed dataset. Memory: four bytes a sample and a sequence.
class Packing;

/// What a step draws: sequences of one or more samples of a dataset. Immutable.
class Sequences {
 public:
  /// Samples that are packed together: so many neighbours, whatever follows them.
  static constexpr std::int64_t default_window = std::int64_t{1} << 20;

  /// Each sample is a sequence, in the dataset's order. Costs no memory.
  Sequences(Dataset dataset);  // NOLINT: a dataset is sequences

  /// Samples fill sequences of `capacity` positions by best fit: longest first, those of equal
  /// length in the dataset's order, each into the fullest sequence that has room for it; `window`
  /// neighbours at a time, by `num_threads` threads. What the result is depends on the lengths
  /// alone. Time: a few words of capacity / 64 a sample. Every sample takes capacity positions at
  /// most. Source: best-fit decreasing; Johnson et al. 1974 (SIAM J. Comput. 3): never more than
  /// 11/9 of the fewest sequences possible and four, of a window.
  static Sequences packed(Dataset dataset, std::int64_t capacity, int num_threads = 1,
                          std::int64_t window = default_window);

  /// The sequences of all, one after the other.
  static Sequences join(std::span<const Sequences> parts);

  /// The same sequences, longest first, those of equal length in order: micro-batches of
  /// neighbours need little padding. Memory: eight bytes a sequence.
  Sequences by_length() const;

  const Dataset& dataset() const { return dataset_; }
  std::int64_t size() const { return ends_.back(); }

  // Of sequence i, 0 <= i < size().
  std::vector<std::int64_t> samples(std::int64_t i) const;
  std::int64_t num_samples(std::int64_t i) const;
  std::int64_t positions(std::int64_t i) const;    ///< without padding
  std::int64_t num_tokens(std::int64_t i) const;   ///< of its samples
  std::int64_t num_targets(std::int64_t i) const;  ///< see data::num_targets

 private:
  /// Of one of several datasets.
  struct Part {
    std::int64_t first_sample = 0;
    std::int64_t num_sequences = 0;
    std::shared_ptr<const Packing> packing;  ///< null: each sample is a sequence
  };

  Sequences(Dataset dataset, std::vector<Part> parts);

  /// Calls `f(sample)` for the samples of sequence i.
  template <typename F>
  void for_each(std::int64_t i, const F& f) const;
  template <typename F>
  std::int64_t sum(std::int64_t i, const F& f) const;

  Dataset dataset_;
  std::vector<Part> parts_;
  std::vector<std::int64_t> ends_;                          ///< sequences in parts 0 .. p
  std::shared_ptr<const std::vector<std::int64_t>> order_;  ///< null: as they are
};

}  // namespace finetune::data
