#pragma once
// SPDX-License-Identifier: Apache-2.0
// How likely a model finds what follows a prompt.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "train/step/passes.hpp"

namespace finetune::train {

/// Tokens of which the model sees the first ones, and finds the others more or less likely.
struct Continuation {
  std::vector<std::int32_t> prompt;  ///< at least one
  std::vector<std::int32_t> tokens;  ///< at least one
};

struct ContinuationScore {
  double log_likelihood = 0;  ///< natural logarithm of the probability of all of `tokens`
  bool is_greedy = false;     ///< each of them is the likeliest
};

struct ScoreOptions {
  std::int64_t batch_tokens = 2048;  ///< in one pass, unless one continuation has more
  /// Those that are known already are not computed: in the order of the continuations.
  std::function<const ContinuationScore*(std::size_t)> known = {};
  /// Some are known from now on; on every rank, in an order that does not depend on ranks.
  std::function<void(std::span<const std::size_t>, std::span<const ContinuationScore>)> on_scores =
      {};
  /// Asked between passes on all ranks: true on any ends it; what is missing has score 0.
  std::function<bool()> should_stop = {};
};

/// Scores in the order of `continuations`, which are the same on every rank, on every rank. Which
/// of them share a pass does not depend on the ranks, so results are the same to the bit on any
/// number of them (ranks of cp: of as many of them). What is longer than the model's positions
/// loses its beginning. Collective on fsdp and dp_replicate; ranks of tp pass the same.
std::vector<ContinuationScore> score(const Engine& engine,
                                     std::span<const Continuation> continuations,
                                     const ScoreOptions& options = {});

}  // namespace finetune::train
