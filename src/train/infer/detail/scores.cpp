// SPDX-License-Identifier: Apache-2.0
#include "train/infer/detail/scores.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/error.hpp"
#include "data/steps/micro_batch.hpp"
#include "train/infer/detail/copies.hpp"
#include "train/infer/detail/token_values.hpp"

namespace finetune::train {
namespace {

/// Of a continuation, what the model reads: all but the last token, as far as it has positions.
std::int64_t num_read(const Continuation& one, std::int64_t positions) {
  return std::min(std::ssize(one.prompt) + std::ssize(one.tokens) - 1, positions);
}

void add(const Continuation& one, std::int64_t positions, data::MicroBatch& batch) {
  std::vector<std::int64_t> all(one.prompt.begin(), one.prompt.end());
  all.insert(all.end(), one.tokens.begin(), one.tokens.end());
  const std::int64_t length = num_read(one, positions);
  const std::int64_t first = std::ssize(all) - 1 - length;
  for (std::int64_t i = first; i + 1 < std::ssize(all); ++i) {
    const bool is_scored = i + 1 >= std::ssize(one.prompt);
    batch.ids.push_back(all[static_cast<std::size_t>(i)]);
    batch.labels.push_back(is_scored ? all[static_cast<std::size_t>(i) + 1] : data::not_trained);
  }
  batch.stretches.push_back({length, false});
  batch.length += length;
}

/// By token of a pass.
struct TokenScores {
  std::vector<float> log_probs;
  std::vector<std::int64_t> are_first;  ///< 0 or 1
};

/// Collective on cp.
TokenScores scores_of(const Engine& engine, const data::MicroBatch& batch,
                      const model::LabelScores& scores) {
  return {of_all_tokens<float>(engine, batch, scores.log_prob_N.cpu().contiguous()),
          of_all_tokens<std::int64_t>(engine, batch,
                                      scores.is_first_N.to(at::kCPU, at::kLong).contiguous())};
}

/// Of the stretches of a pass.
std::vector<ContinuationScore> sums_of(const data::MicroBatch& batch, const TokenScores& scores) {
  auto log_prob = scores.log_probs.begin();
  auto is_first = scores.are_first.begin();
  std::vector<ContinuationScore> sums;
  for (const data::RowPart& stretch : batch.stretches) {
    ContinuationScore sum{.is_greedy = true};
    for (std::int64_t i = 0; i < stretch.length; ++i, ++log_prob, ++is_first) {
      sum.log_likelihood += *log_prob;
      sum.is_greedy = sum.is_greedy && *is_first != 0;
    }
    sums.push_back(sum);
  }
  return sums;
}

/// Passes: places of continuations, the longest first, so that memory is short at once if at all.
std::vector<std::vector<std::size_t>> passes_of(std::span<const Continuation> continuations,
                                                std::int64_t positions, std::int64_t batch_tokens) {
  std::vector<std::size_t> order(continuations.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto length = [&](std::size_t i) { return num_read(continuations[i], positions); };
  std::ranges::stable_sort(order, std::ranges::greater{}, length);
  std::vector<std::vector<std::size_t>> passes;
  std::int64_t used = 0;
  for (const std::size_t i : order) {
    if (passes.empty() || used + length(i) > batch_tokens) {
      passes.emplace_back();
      used = 0;
    }
    passes.back().push_back(i);
    used += length(i);
  }
  return passes;
}

}  // namespace

std::vector<ContinuationScore> score(const Engine& engine,
                                     std::span<const Continuation> continuations,
                                     const ScoreOptions& options) {
  const std::int64_t positions = engine.architecture.max_positions;
  const comm::Communicator& ranks = engine.shards.fsdp();
  std::vector<ContinuationScore> scores(continuations.size());
  const auto is_known = [&](std::size_t i) { return options.known && options.known(i) != nullptr; };
  for (std::size_t i = 0; i < continuations.size(); ++i) {
    core::check(!continuations[i].prompt.empty() && !continuations[i].tokens.empty(),
                "a continuation follows something");
    if (is_known(i)) scores[i] = *options.known(i);
  }
  auto passes = passes_of(continuations, positions, options.batch_tokens);
  std::erase_if(passes, [&](const auto& pass) { return std::ranges::all_of(pass, is_known); });
  // Ranks of cp share a pass, and are neighbours in fsdp; copies of the model have other passes.
  const auto& cp = engine.shards.groups().cp;
  const Copies copies(engine);
  const auto sharing = static_cast<std::size_t>(cp ? cp->size() : 1);
  const std::size_t of_copy = static_cast<std::size_t>(ranks.size()) / sharing;
  const std::size_t num_passes = of_copy * copies.size();
  for (std::size_t first = 0; first < passes.size(); first += num_passes) {
    const bool stops = options.should_stop && options.should_stop();
    if (ranks.all_reduce(std::int64_t{stops}, comm::Reduce::max) > 0) break;
    const std::size_t own =
        first + copies.rank() * of_copy + static_cast<std::size_t>(ranks.rank()) / sharing;
    std::optional<data::MicroBatch> batch;
    if (own < passes.size()) {
      batch.emplace(data::MicroBatch{.batch = 1, .ids = {}, .labels = {}});
      for (const std::size_t i : passes[own])
        add(continuations[i], positions, *batch);
    }
    const model::LabelScores of_pass = label_scores(engine, batch);
    std::vector<ContinuationScore> own_scores;
    if (batch) own_scores = sums_of(*batch, scores_of(engine, *batch, of_pass));
    // One of those that share it says it.
    if (cp && cp->rank() > 0) own_scores.clear();
    // Each rank's scores reach all: of every pass of this round in turn.
    std::vector<std::size_t> places;
    for (std::size_t pass = first; pass < std::min(first + num_passes, passes.size()); ++pass)
      places.insert(places.end(), passes[pass].begin(), passes[pass].end());
    std::vector<double> values(2 * places.size(), 0.0);
    std::size_t begin = 0;
    for (std::size_t pass = first; pass < own; ++pass)
      begin += pass < passes.size() ? passes[pass].size() : 0;
    for (std::size_t i = 0; i < own_scores.size(); ++i) {
      values[2 * (begin + i)] = own_scores[i].log_likelihood;
      values[2 * (begin + i) + 1] = own_scores[i].is_greedy;
    }
    ranks.all_reduce(std::span(values), comm::Reduce::sum);
    copies.all_reduce(values);
    std::vector<ContinuationScore> found;
    for (std::size_t i = 0; i < places.size(); ++i) {
      found.push_back({values[2 * i], values[2 * i + 1] != 0});
      scores[places[i]] = found.back();
    }
    if (options.on_scores) options.on_scores(places, found);
  }
  engine.shards.release_all();
  return scores;
}

}  // namespace finetune::train
