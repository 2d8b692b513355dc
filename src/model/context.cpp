// SPDX-License-Identifier: Apache-2.0
#include "model/context.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "model/upload.hpp"

namespace finetune::model {
namespace {

void add_run(std::vector<TokenRun>& runs, TokenRun run) {
  if (run.count > 0) runs.push_back(run);
}

/// The two chunks of a row, as one run where they are neighbours.
void add_chunks(std::vector<TokenRun>& runs, std::int64_t row, std::int64_t length, int num_ranks,
                int rank) {
  const std::int64_t num_chunks = 2 * num_ranks;
  const auto begin = [&](std::int64_t chunk) { return row * length + length * chunk / num_chunks; };
  const std::int64_t late = num_chunks - 1 - rank;
  if (late == rank + 1) return add_run(runs, {begin(rank), begin(late + 1) - begin(rank)});
  add_run(runs, {begin(rank), begin(rank + 1) - begin(rank)});
  add_run(runs, {begin(late), begin(late + 1) - begin(late)});
}

}  // namespace

ContextLayout::ContextLayout(std::int64_t batch, std::int64_t length, int num_ranks, int rank)
    : rank_(rank), num_all_tokens_(batch * length), runs_(static_cast<std::size_t>(num_ranks)) {
  for (int r = 0; r < num_ranks; ++r) {
    std::vector<TokenRun>& runs = runs_[static_cast<std::size_t>(r)];
    for (std::int64_t row = 0; row < batch; ++row)
      add_chunks(runs, row, length, num_ranks, r);
    num_tokens_.push_back(count_tokens(runs));
  }
}

std::vector<std::int64_t> ContextLayout::own_tokens() const {
  std::vector<std::int64_t> tokens;
  tokens.reserve(static_cast<std::size_t>(num_own_tokens()));
  for (const TokenRun& run : runs(rank_))
    for (std::int64_t token = run.first; token < run.end(); ++token)
      tokens.push_back(token);
  return tokens;
}

Sequence part_of(Sequence whole, std::shared_ptr<const ContextLayout> context) {
  const std::vector<std::int64_t> own = context->own_tokens();
  const at::Tensor tokens =
      upload(at::tensor(at::ArrayRef<std::int64_t>(own), at::kLong), whole.positions.device());
  whole.positions = whole.positions.index_select(0, tokens);
  whole.context = std::move(context);
  return whole;
}

namespace {

/// Place in the list of all tokens of `runs`.
std::int64_t place_in(const std::vector<TokenRun>& runs, std::int64_t token) {
  std::int64_t before = 0;
  for (const TokenRun& run : runs) {
    if (token >= run.first && token < run.end()) return before + token - run.first;
    before += run.count;
  }
  core::check(false, "a token is looked for where it is");
  return -1;
}

/// Tokens of both lists, which are in order: as runs that lie in one of each.
std::vector<TokenRun> common(const std::vector<TokenRun>& a, const std::vector<TokenRun>& b) {
  std::vector<TokenRun> both;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::int64_t first = std::max(a[i].first, b[j].first);
    add_run(both, {first, std::min(a[i].end(), b[j].end()) - first});
    a[i].end() < b[j].end() ? ++i : ++j;
  }
  return both;
}

/// The same tokens by their places in `runs`.
std::vector<TokenRun> places_in(const std::vector<TokenRun>& runs, std::vector<TokenRun> tokens) {
  for (TokenRun& run : tokens)
    run.first = place_in(runs, run.first);
  return tokens;
}

/// Tokens that see each other, causally: samples, or what chunks leave of them.
std::vector<TokenRun> groups_in_sight(const Sequence& sequence, std::int64_t chunk) {
  std::vector<TokenRun> groups;
  const auto add = [&](std::int64_t begin, std::int64_t length) {
    const std::int64_t step = chunk > 0 ? chunk : length;
    for (std::int64_t first = 0; first < length; first += step)
      groups.push_back({begin + first, std::min(step, length - first)});
  };
  if (sequence.stretches.empty())
    for (std::int64_t row = 0; row < sequence.batch; ++row)
      add(row * sequence.length, sequence.length);
  for (const Stretch& stretch : sequence.stretches)
    if (!stretch.is_padding) add(stretch.begin, stretch.length);
  return groups;
}

/// Queries of one run, and where the group that they see begins.
struct QueryRun {
  TokenRun tokens;  ///< of the pass
  std::int64_t group_begin = 0;

  bool has_band(std::int64_t window) const {
    return window > 0 && tokens.end() - group_begin > window;
  }
  std::int64_t first_key(std::int64_t window) const {
    return has_band(window) ? std::max(group_begin, tokens.first - window + 1) : group_begin;
  }
};

std::vector<QueryRun> queries_of(const Sequence& sequence, std::int64_t chunk, int rank) {
  const std::vector<TokenRun> groups = groups_in_sight(sequence, chunk);
  std::vector<QueryRun> queries;
  for (const TokenRun& run : common(groups, sequence.context->runs(rank))) {
    const auto after =
        std::ranges::upper_bound(groups, run.first, {}, [](const TokenRun& g) { return g.first; });
    queries.push_back({run, std::prev(after)->first});
  }
  return queries;
}

}  // namespace

std::int64_t ContextLayout::local(int rank, std::int64_t token) const {
  return place_in(runs(rank), token);
}

std::int64_t count_tokens(const std::vector<TokenRun>& runs) {
  std::int64_t count = 0;
  for (const TokenRun& run : runs)
    count += run.count;
  return count;
}

std::int64_t queries_a_piece(std::int64_t window) {
  return std::clamp<std::int64_t>(window, 64, 512);
}

std::vector<TokenRun> seen_keys(const Sequence& sequence, Reach reach, int rank) {
  std::vector<TokenRun> seen;
  for (const QueryRun& query : queries_of(sequence, reach.chunk, rank)) {
    const std::int64_t first = query.first_key(reach.window), end = query.tokens.end();
    if (seen.empty() || first > seen.back().end()) {
      seen.push_back({first, end - first});
      continue;
    }
    TokenRun& last = seen.back();
    const std::int64_t begin = std::min(first, last.first);
    last = {begin, end - begin};
  }
  return seen;
}

Sequence own_runs(const Sequence& sequence, std::int64_t chunk) {
  const ContextLayout& layout = *sequence.context;
  Sequence own;
  own.length = layout.num_own_tokens();
  std::int64_t end = 0;
  const auto fill_up_to = [&](std::int64_t begin) {
    if (begin > end) own.stretches.push_back({end, begin - end, true});
  };
  for (const QueryRun& query : queries_of(sequence, chunk, layout.rank())) {
    const std::int64_t begin = layout.local(layout.rank(), query.tokens.first);
    fill_up_to(begin);
    own.stretches.push_back({begin, query.tokens.count});
    end = begin + query.tokens.count;
  }
  fill_up_to(own.length);
  return own;
}

std::vector<ContextPiece> pieces_of_holder(const Sequence& sequence, std::int64_t chunk,
                                           int holder) {
  const ContextLayout& layout = *sequence.context;
  const std::vector<TokenRun>& held = layout.runs(holder);
  std::vector<ContextPiece> pieces;
  for (const QueryRun& query : queries_of(sequence, chunk, layout.rank())) {
    const TokenRun own = {layout.local(layout.rank(), query.tokens.first), query.tokens.count};
    if (holder == layout.rank()) pieces.push_back({own, own, ContextPiece::Sees::causal});
    const TokenRun before = {query.group_begin, query.tokens.first - query.group_begin};
    for (const TokenRun& keys : places_in(held, common({before}, held)))
      pieces.push_back({own, keys, ContextPiece::Sees::all});
  }
  return pieces;
}

namespace {

void add_band(std::vector<ContextPiece>& pieces, const QueryRun& query, std::int64_t window,
              const std::vector<TokenRun>& own, const std::vector<TokenRun>& at_hand) {
  const std::int64_t step = queries_a_piece(window), last = query.tokens.end();
  for (std::int64_t first = query.tokens.first; first < last; first += step) {
    const std::int64_t end = std::min(first + step, last);
    const std::int64_t key = std::max(query.group_begin, first - window + 1);
    pieces.push_back({{place_in(own, first), end - first},
                      {place_in(at_hand, key), end - key},
                      ContextPiece::Sees::band});
  }
}

std::vector<ContextPiece> pieces_of_fetched(const Sequence& sequence, Reach reach,
                                            const std::vector<TokenRun>& at_hand) {
  const std::vector<TokenRun>& own = sequence.context->runs(sequence.context->rank());
  std::vector<ContextPiece> pieces;
  for (const QueryRun& query : queries_of(sequence, reach.chunk, sequence.context->rank())) {
    if (query.has_band(reach.window)) {
      add_band(pieces, query, reach.window, own, at_hand);
      continue;
    }
    const TokenRun queries = {place_in(own, query.tokens.first), query.tokens.count};
    const std::int64_t self = place_in(at_hand, query.tokens.first);
    pieces.push_back({queries, {self, queries.count}, ContextPiece::Sees::causal});
    const std::int64_t before = query.tokens.first - query.group_begin;
    if (before > 0) pieces.push_back({queries, {self - before, before}, ContextPiece::Sees::all});
  }
  return pieces;
}

}  // namespace

KeyFetch fetch_keys(const Sequence& sequence, Reach reach) {
  const ContextLayout& layout = *sequence.context;
  const std::vector<TokenRun>& own = layout.runs(layout.rank());
  const std::vector<TokenRun> at_hand = seen_keys(sequence, reach, layout.rank());
  KeyFetch fetch;
  for (int rank = 0; rank < layout.num_ranks(); ++rank) {
    fetch.sent.push_back(places_in(own, common(own, seen_keys(sequence, reach, rank))));
    fetch.received.push_back(places_in(at_hand, common(layout.runs(rank), at_hand)));
  }
  fetch.num_keys = count_tokens(at_hand);
  fetch.pieces = pieces_of_fetched(sequence, reach, at_hand);
  return fetch;
}

}  // namespace finetune::model
