#pragma once
// SPDX-License-Identifier: Apache-2.0
// How ranks share the tokens of a pass (context parallelism), and which keys their queries see.
// Arithmetic alone: whoever communicates goes by it.

#include <cstdint>
#include <memory>
#include <vector>

#include "model/sequence.hpp"

namespace finetune::model {

/// Consecutive tokens: [first, first + count).
struct TokenRun {
  std::int64_t first = 0;
  std::int64_t count = 0;

  std::int64_t end() const { return first + count; }
  bool operator==(const TokenRun&) const = default;
};

/// Which tokens of a pass each rank has. Every row is cut into 2 R chunks for R ranks, as even as
/// whole tokens allow, and rank r has chunks r and 2 R - 1 - r: the later a query, the more keys it
/// sees, and so every rank has as many. Short rows leave some ranks with nothing.
///
/// A token's number in the pass is row * length + column; its number on its rank counts the rank's
/// tokens in that order.
class ContextLayout {
 public:
  ContextLayout(std::int64_t batch, std::int64_t length, int num_ranks, int rank);

  int num_ranks() const { return static_cast<int>(runs_.size()); }
  int rank() const { return rank_; }

  /// Of the pass, in order; none is empty and none crosses the end of a row.
  const std::vector<TokenRun>& runs(int rank) const { return of(runs_, rank); }
  std::int64_t num_tokens(int rank) const { return of(num_tokens_, rank); }
  std::int64_t num_own_tokens() const { return num_tokens(rank_); }
  std::int64_t num_all_tokens() const { return num_all_tokens_; }

  /// Numbers in the pass of this rank's tokens.
  std::vector<std::int64_t> own_tokens() const;
  /// Number on `rank` of a token of the pass that it has.
  std::int64_t local(int rank, std::int64_t token) const;

 private:
  template <typename T>
  static const T& of(const std::vector<T>& ranks, int rank) {
    return ranks.at(static_cast<std::size_t>(rank));
  }

  int rank_;
  std::int64_t num_all_tokens_;
  std::vector<std::vector<TokenRun>> runs_;
  std::vector<std::int64_t> num_tokens_;
};

/// A pass of which this rank has a part: `whole` with the positions of its tokens.
Sequence part_of(Sequence whole, std::shared_ptr<const ContextLayout> context);

/// What layers see of a sample: AttentionShape's numbers.
struct Reach {
  std::int64_t window = 0, chunk = 0;

  auto operator<=>(const Reach&) const = default;
};

/// Queries of this rank, and keys at hand that they see.
struct ContextPiece {
  enum class Sees {
    causal,  ///< the keys are the queries' own tokens, and each sees those up to itself
    band,    ///< the keys end where the queries do, and each sees a window
    all      ///< every query sees every key
  };

  TokenRun queries;  ///< own tokens
  TokenRun keys;     ///< rows of the keys at hand
  Sees sees = Sees::causal;
};

/// What this rank's queries see of the keys of `holder`, which are at hand in its order. Those of a
/// query's own run come first: each query is in exactly one causal piece, with `holder` its own
/// rank. Without windows.
std::vector<ContextPiece> pieces_of_holder(const Sequence& sequence, std::int64_t chunk,
                                           int holder);

/// This rank's tokens alone, by their own numbers, as if they were a pass: its runs of samples, and
/// as padding what no one looks at. What causal pieces compute.
Sequence own_runs(const Sequence& sequence, std::int64_t chunk);

/// The keys that this rank's queries see, fetched from whoever has them; at hand in the order of
/// the pass.
struct KeyFetch {
  std::vector<std::vector<TokenRun>> sent;      ///< own tokens, by who gets them
  std::vector<std::vector<TokenRun>> received;  ///< rows of the keys at hand, by who sends them
  std::int64_t num_keys = 0;
  std::vector<ContextPiece> pieces;  ///< each query's causal or band piece before its others
};

KeyFetch fetch_keys(const Sequence& sequence, Reach reach);

/// Keys that the queries of `rank` see, each once: in runs, in order.
std::vector<TokenRun> seen_keys(const Sequence& sequence, Reach reach, int rank);

std::int64_t count_tokens(const std::vector<TokenRun>& runs);

/// Queries a piece of a window: the keys of a piece overlap those of the next by a window, so many
/// queries waste little, and few keep the mask small.
std::int64_t queries_a_piece(std::int64_t window);

}  // namespace finetune::model
