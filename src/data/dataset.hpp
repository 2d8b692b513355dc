#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tokenised samples in one flat array, the same on every rank.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/tokens.hpp"

namespace finetune::data {

/// A token id and whether it is trained, in 32 bits: ids are not negative, so the complement of an
/// id marks it as untrained.
class PackedToken {
 public:
  PackedToken() = default;
  PackedToken(std::int32_t id, bool trained) : bits_(trained ? id : ~id) {}

  std::int32_t id() const { return trained() ? bits_ : ~bits_; }
  bool trained() const { return bits_ >= 0; }

 private:
  std::int32_t bits_ = 0;
};

/// Tokens [begin, begin + length) of the flat array: one sequence.
struct Span {
  std::int64_t begin = 0;
  std::int64_t length = 0;
};

/// Sequences for training or validation. Copies share the tokens. Immutable.
class Dataset {
 public:
  Dataset() = default;
  Dataset(std::shared_ptr<const std::vector<PackedToken>> tokens, std::vector<Span> samples);

  std::int64_t num_samples() const { return std::ssize(samples_); }
  /// Sum of the samples' lengths.
  std::int64_t num_tokens() const { return num_tokens_; }
  /// Targets of all samples: see num_trained_tokens(std::span).
  std::int64_t num_trained_tokens() const { return num_trained_tokens_; }

  /// The tokens of sample i, 0 <= i < num_samples().
  std::span<const PackedToken> sample(std::int64_t i) const;

  /// The same, unpacked.
  Tokens tokens(std::int64_t i) const;

  /// The samples with these indices, in this order.
  Dataset subset(std::span<const std::int64_t> indices) const;

  /// 32 hexadecimal digits of all tokens, labels and sample bounds in order. Does not depend on
  /// the number of ranks that made the dataset, or on the files' names.
  std::string fingerprint() const;

 private:
  std::shared_ptr<const std::vector<PackedToken>> tokens_;
  std::vector<Span> samples_;
  std::int64_t num_tokens_ = 0;
  std::int64_t num_trained_tokens_ = 0;
};

/// Trained tokens of one sequence that a preceding token of it predicts: those after its first.
std::int64_t num_targets(std::span<const PackedToken> sample);

/// Targets of the samples with these indices: the divisor of the loss of a step over them.
std::int64_t num_trained_tokens(const Dataset& dataset, std::span<const std::int64_t> indices);

struct Split {
  Dataset training;
  Dataset validation;
};

/// Takes `fraction` of the samples, rounded up, out of the training data for validation: a choice
/// that depends on `seed` alone, both parts in file order.
/// Throws: ErrorKind::deck if no sample would be left for training; fraction in (0, 1).
Split split(const Dataset& dataset, double fraction, std::uint64_t seed);

}  // namespace finetune::data
