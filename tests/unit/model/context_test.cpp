// SPDX-License-Identifier: Apache-2.0
#include "model/context.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

namespace finetune::model::context_test {
namespace {

using Tokens = std::vector<std::int64_t>;

Sequence sequence(std::int64_t batch, std::int64_t length, std::vector<Stretch> stretches = {}) {
  Sequence sequence;
  sequence.batch = batch;
  sequence.length = length;
  sequence.stretches = std::move(stretches);
  return sequence;
}

Sequence on_rank(Sequence sequence, int num_ranks, int rank) {
  sequence.context =
      std::make_shared<ContextLayout>(sequence.batch, sequence.length, num_ranks, rank);
  return sequence;
}

TEST(ContextLayout, ARankHasAnEarlyChunkAndALateOne) {
  EXPECT_EQ(ContextLayout(1, 12, 3, 0).own_tokens(), (Tokens{0, 1, 10, 11}));
  EXPECT_EQ(ContextLayout(1, 12, 3, 1).own_tokens(), (Tokens{2, 3, 8, 9}));
  EXPECT_EQ(ContextLayout(1, 12, 3, 2).own_tokens(), (Tokens{4, 5, 6, 7}));
  EXPECT_EQ(ContextLayout(2, 4, 2, 0).own_tokens(), (Tokens{0, 3, 4, 7}));
}

TEST(ContextLayout, ChunksThatAreNeighboursAreOneRun) {
  EXPECT_EQ(ContextLayout(1, 12, 3, 0).runs(2), (std::vector<TokenRun>{{4, 4}}));
  EXPECT_EQ(ContextLayout(2, 12, 3, 0).runs(0),
            (std::vector<TokenRun>{{0, 2}, {10, 2}, {12, 2}, {22, 2}}));
}

TEST(ContextLayout, EveryTokenIsOnOneRankAndIsFoundThere) {
  for (const std::int64_t length : {1, 3, 5, 8, 13, 29}) {
    for (int num_ranks = 1; num_ranks <= 5; ++num_ranks) {
      std::set<std::int64_t> all;
      for (int rank = 0; rank < num_ranks; ++rank) {
        const ContextLayout layout(2, length, num_ranks, rank);
        const Tokens own = layout.own_tokens();
        EXPECT_EQ(layout.num_own_tokens(), std::ssize(own));
        for (std::size_t i = 0; i < own.size(); ++i) {
          EXPECT_TRUE(all.insert(own[i]).second);
          EXPECT_EQ(layout.local(rank, own[i]), static_cast<std::int64_t>(i));
        }
      }
      EXPECT_EQ(std::ssize(all), 2 * length);
      EXPECT_EQ(ContextLayout(2, length, num_ranks, 0).num_all_tokens(), 2 * length);
    }
  }
}

TEST(ContextLayout, RanksHaveAsMuchCausalWork) {
  for (int rank = 0; rank < 4; ++rank) {
    std::int64_t seen = 0;
    for (const std::int64_t token : ContextLayout(1, 64, 4, rank).own_tokens())
      seen += token + 1;
    EXPECT_EQ(seen, 64 * 65 / 2 / 4);
  }
}

using Pairs = std::set<std::pair<std::int64_t, std::int64_t>>;  ///< query and key, of the pass

/// By the definition.
Pairs in_sight(const Sequence& sequence, Reach reach) {
  Pairs pairs;
  std::vector<Stretch> stretches = sequence.stretches;
  if (stretches.empty())
    for (std::int64_t row = 0; row < sequence.batch; ++row)
      stretches.push_back({row * sequence.length, sequence.length});
  for (const Stretch& stretch : stretches) {
    for (std::int64_t q = 0; !stretch.is_padding && q < stretch.length; ++q)
      for (std::int64_t k = 0; k <= q; ++k)
        if ((reach.window == 0 || q - k < reach.window) &&
            (reach.chunk == 0 || q / reach.chunk == k / reach.chunk))
          pairs.insert({stretch.begin + q, stretch.begin + k});
  }
  return pairs;
}

/// Adds what a piece computes; none of it twice.
void add(const ContextPiece& piece, Reach reach, const Tokens& own, const Tokens& at_hand,
         Pairs& pairs) {
  for (std::int64_t q = 0; q < piece.queries.count; ++q) {
    for (std::int64_t k = 0; k < piece.keys.count; ++k) {
      const std::int64_t distance = q + piece.keys.count - piece.queries.count - k;
      const bool sees =
          piece.sees == ContextPiece::Sees::all ||
          (distance >= 0 && (piece.sees == ContextPiece::Sees::causal || distance < reach.window));
      if (!sees) continue;
      const bool is_new = pairs
                              .insert({own.at(static_cast<std::size_t>(piece.queries.first + q)),
                                       at_hand.at(static_cast<std::size_t>(piece.keys.first + k))})
                              .second;
      EXPECT_TRUE(is_new);
    }
  }
}

std::vector<Sequence> sequences() {
  return {sequence(2, 13), sequence(1, 3),
          sequence(2, 20, {{0, 7}, {7, 1}, {8, 10}, {18, 2, true}, {20, 20}})};
}

constexpr Reach reaches[] = {{}, {.window = 1}, {.window = 5}, {.chunk = 4}};

TEST(FetchKeys, QueriesSeeWhatOneRankSees) {
  for (const Sequence& whole : sequences()) {
    for (const Reach reach : reaches) {
      for (const int num_ranks : {1, 2, 3, 4}) {
        Pairs pairs;
        for (int rank = 0; rank < num_ranks; ++rank) {
          const Sequence own = on_rank(whole, num_ranks, rank);
          Tokens at_hand;
          for (const TokenRun& run : seen_keys(own, reach, rank))
            for (std::int64_t token = run.first; token < run.end(); ++token)
              at_hand.push_back(token);
          const KeyFetch fetch = fetch_keys(own, reach);
          EXPECT_EQ(fetch.num_keys, std::ssize(at_hand));
          for (const ContextPiece& piece : fetch.pieces)
            add(piece, reach, own.context->own_tokens(), at_hand, pairs);
        }
        EXPECT_EQ(pairs, in_sight(whole, reach));
      }
    }
  }
}

TEST(FetchKeys, RanksAgreeOnWhatTheySend) {
  for (const Sequence& whole : sequences()) {
    for (int sender = 0; sender < 3; ++sender) {
      for (int receiver = 0; receiver < 3; ++receiver) {
        const Sequence here = on_rank(whole, 3, sender), there = on_rank(whole, 3, receiver);
        const auto sent = fetch_keys(here, {.window = 5}).sent.at(receiver);
        const auto received = fetch_keys(there, {.window = 5}).received.at(sender);
        EXPECT_EQ(count_tokens(sent), count_tokens(received));
      }
    }
  }
}

TEST(FetchKeys, OfWindowsOnlyTailsTravel) {
  const Sequence own = on_rank(sequence(1, 800), 4, 1);
  const KeyFetch fetch = fetch_keys(own, {.window = 8});
  // Before each of the rank's two chunks, from the ranks that have the chunks before.
  EXPECT_EQ(count_tokens(fetch.received.at(0)), 7);
  EXPECT_EQ(count_tokens(fetch.received.at(2)), 7);
  EXPECT_EQ(count_tokens(fetch.received.at(3)), 0);
}

TEST(PiecesOfHolder, QueriesSeeWhatOneRankSees) {
  for (const Sequence& whole : sequences()) {
    for (const Reach reach : {Reach{}, Reach{.chunk = 4}}) {
      for (const int num_ranks : {1, 2, 3, 4}) {
        Pairs pairs;
        for (int rank = 0; rank < num_ranks; ++rank) {
          const Sequence own = on_rank(whole, num_ranks, rank);
          for (int holder = 0; holder < num_ranks; ++holder)
            for (const ContextPiece& piece : pieces_of_holder(own, reach.chunk, holder))
              add(piece, reach, own.context->own_tokens(),
                  on_rank(whole, num_ranks, holder).context->own_tokens(), pairs);
        }
        EXPECT_EQ(pairs, in_sight(whole, reach));
      }
    }
  }
}

TEST(OwnRuns, AreTheRanksSamplesAndCoverItsTokens) {
  const Sequence whole = sequence(2, 20, {{0, 7}, {7, 1}, {8, 10}, {18, 2, true}, {20, 20}});
  const Sequence own = own_runs(on_rank(whole, 2, 0), 0);
  // Columns 0 to 4 and 15 to 19 of each row.
  EXPECT_EQ(own.length, 20);
  std::vector<TokenRun> samples, padding;
  for (const Stretch& stretch : own.stretches)
    (stretch.is_padding ? padding : samples).push_back({stretch.begin, stretch.length});
  EXPECT_EQ(samples, (std::vector<TokenRun>{{0, 5}, {5, 3}, {10, 5}, {15, 5}}));
  EXPECT_EQ(padding, (std::vector<TokenRun>{{8, 2}}));
}

}  // namespace
}  // namespace finetune::model::context_test
