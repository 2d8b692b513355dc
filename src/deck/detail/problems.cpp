// SPDX-License-Identifier: Apache-2.0
#include "deck/detail/problems.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/error.hpp"

namespace finetune::deck {
namespace {

// A deck with more problems than this is not a deck; the rest is only counted.
constexpr std::size_t most_blocks = 50;

std::string block(const SourceText& source, const DeckProblem& problem) {
  std::string text =
      core::to_string({source.where(problem.place), problem.problem, problem.why, problem.remedy});
  const std::string excerpt = source.excerpt(problem.place);
  return excerpt.empty() ? text : text + "\n" + excerpt;
}

bool before(const DeckProblem& a, const DeckProblem& b) {
  const auto order = [](const TextPlace& place) {
    return std::tuple(!place.argument.empty(), place.line, place.column);
  };
  return order(a.place) < order(b.place);
}

}  // namespace

void Problems::throw_if_any(const SourceText& source) const {
  if (problems_.empty()) return;
  std::vector<DeckProblem> sorted = problems_;
  std::stable_sort(sorted.begin(), sorted.end(), before);
  std::string text;
  const std::size_t num_shown = std::min(sorted.size(), most_blocks);
  for (std::size_t i = 0; i < num_shown; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : "\n", block(source, sorted[i]));
  if (sorted.size() > 1) {
    const std::string shown =
        num_shown < sorted.size() ? fmt::format(", of which {} are shown", num_shown) : "";
    text += fmt::format("\n{}: {} problems{}.", source.where(TextPlace()), sorted.size(), shown);
  }
  throw core::Error(core::ErrorKind::deck, text);
}

void fail(const SourceText& source, DeckProblem problem) {
  throw core::Error(core::ErrorKind::deck, block(source, problem));
}

}  // namespace finetune::deck
