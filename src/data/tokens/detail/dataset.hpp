#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tokenised samples, in memory or in a mapped file, the same on every rank.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/tokens/detail/tokens.hpp"

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
static_assert(sizeof(PackedToken) == sizeof(std::int32_t));

/// Tokens [begin, begin + length) of an array: one sample.
struct Span {
  std::int64_t begin = 0;
  std::int64_t length = 0;
};

/// Samples that lie one behind the other. Sample i is tokens [bounds[i], bounds[i + 1] + overlap).
struct TokenArrays {
  std::span<const PackedToken> tokens;
  std::span<const std::int64_t> bounds;   ///< num_samples() + 1
  std::span<const std::int32_t> targets;  ///< see num_targets; of every sample
  std::int64_t overlap = 0;               ///< 1: a sample's last token is the next one's first
  std::shared_ptr<const void> owner;      ///< keeps the arrays

  std::int64_t num_samples() const { return std::ssize(targets); }
  std::span<const PackedToken> sample(std::int64_t i) const;
};

/// Trained tokens of one sequence that a preceding token of it predicts: those after its first.
std::int64_t num_targets(std::span<const PackedToken> sample);

/// Samples for training or validation, numbered 0 .. num_samples() - 1. Copies share the tokens.
/// Immutable.
class Dataset {
 public:
  Dataset() = default;
  explicit Dataset(TokenArrays arrays);
  /// Copies the samples out of `tokens`: for a few in memory.
  Dataset(const std::shared_ptr<const std::vector<PackedToken>>& tokens,
          const std::vector<Span>& samples);

  /// The samples of all, one data set after the other.
  static Dataset join(std::span<const Dataset> datasets);

  std::int64_t num_samples() const { return ends_.empty() ? 0 : ends_.back(); }

  // Of sample i, 0 <= i < num_samples(). Only the first and the last read its tokens.
  std::span<const PackedToken> sample(std::int64_t i) const;
  std::int64_t length(std::int64_t i) const;       ///< tokens
  std::int64_t num_targets(std::int64_t i) const;  ///< see data::num_targets
  Tokens tokens(std::int64_t i) const;

  /// Sum of the samples' lengths, and targets of all samples. Both look at every sample's bounds.
  std::int64_t num_tokens() const;
  std::int64_t num_trained_tokens() const;

  /// The samples with these indices, in increasing order, and all the others in theirs. Memory:
  /// that of `indices` for each.
  Dataset subset(std::vector<std::int64_t> indices) const;
  Dataset without(std::vector<std::int64_t> indices) const;

 private:
  struct Part {
    TokenArrays arrays;
    /// What of the arrays belongs to it: these samples, or all but these; null for all.
    std::shared_ptr<const std::vector<std::int64_t>> chosen;
    std::shared_ptr<const std::vector<std::int64_t>> removed;

    std::int64_t num_samples() const;
    std::int64_t index(std::int64_t i) const;
  };
  struct Place {
    const TokenArrays& arrays;
    std::int64_t index;
  };

  void add(Part part);
  Place find(std::int64_t i) const;

  std::vector<Part> parts_;
  std::vector<std::int64_t> ends_;  ///< samples in parts 0 .. p
};

}  // namespace finetune::data
