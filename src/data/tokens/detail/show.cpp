// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/show.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/text.hpp"

namespace finetune::data {
namespace {

/// What stays of a run: all of it, or so many tokens of its beginning and of its end.
struct Room {
  std::size_t head;
  std::size_t tail;

  std::size_t longest() const { return (head + tail) * 6 / 5; }
};
constexpr Room usual_room = {200, 50};
/// Of conversations, each tried where what the one before leaves is too much.
constexpr std::array rooms = {usual_room, Room{90, 30}, Room{40, 15}, Room{16, 8}, Room{6, 4}};
constexpr std::size_t most_runs = 12;
/// Tokens may be long, and the text is kept where there is little room.
constexpr std::size_t most_shown_bytes = 16384;

/// Cuts off what is too much, between two characters.
void shorten(std::string& lines) {
  if (lines.size() <= most_shown_bytes) return;
  lines.resize(core::first_bytes(lines, most_shown_bytes).size());
  lines += "\n      (the rest is left out)";
}

/// Cuts out what is too much, between two lines, in the middle.
void shorten_middle(std::string& lines) {
  if (lines.size() <= most_shown_bytes) return;
  std::size_t begin = lines.rfind('\n', most_shown_bytes / 2);
  std::size_t end = lines.find('\n', lines.size() - most_shown_bytes / 2);
  // A line may be too long itself.
  if (begin == std::string::npos || end == std::string::npos) return shorten(lines);
  const auto num_lines = std::count(lines.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                                    lines.begin() + static_cast<std::ptrdiff_t>(end) + 1, '\n');
  lines.replace(begin, end - begin,
                fmt::format("\n      ({} lines left out)", core::with_commas(num_lines)));
}

void add_text(std::string& lines, char mark, const std::string& text) {
  std::size_t begin = 0;
  do {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const bool has_newline = end < text.size();
    lines += fmt::format("    {} {}{}\n", mark,
                         core::one_line(std::string_view(text).substr(begin, end - begin)),
                         has_newline ? "\\n" : "");
    begin = end + 1;
  } while (begin < text.size());
}

void add_gap(std::string& lines, std::size_t num_tokens) {
  lines += fmt::format("      ({} {} left out)\n",
                       core::with_commas(static_cast<std::int64_t>(num_tokens)),
                       num_tokens == 1 ? "token" : "tokens");
}

void add_run(std::string& lines, const SampleSource& source, std::span<const PackedToken> run,
             const Room& room) {
  const char mark = run[0].trained() ? '+' : '-';
  const auto add = [&](std::span<const PackedToken> tokens) {
    std::vector<std::int32_t> ids;
    for (const PackedToken token : tokens)
      ids.push_back(token.id());
    add_text(lines, mark, run[0].trained() ? source.trained_text(ids) : source.text(ids));
  };
  if (run.size() <= room.longest()) return add(run);
  add(run.first(room.head));
  add_gap(lines, run.size() - room.head - room.tail);
  add(run.last(room.tail));
}

using TokenRuns = std::vector<std::span<const PackedToken>>;

/// Neighbours that are all trained, or all not.
TokenRuns token_runs(std::span<const PackedToken> tokens) {
  TokenRuns runs;
  while (!tokens.empty()) {
    const bool trained = tokens[0].trained();
    const auto end =
        std::ranges::find_if(tokens, [&](PackedToken token) { return token.trained() != trained; });
    runs.push_back(tokens.first(static_cast<std::size_t>(end - tokens.begin())));
    tokens = tokens.subspan(runs.back().size());
  }
  return runs;
}

std::size_t num_tokens(std::span<const std::span<const PackedToken>> runs) {
  std::size_t sum = 0;
  for (const auto& run : runs)
    sum += run.size();
  return sum;
}

/// The runs of a turn, of many the first and the last.
void add_turn(std::string& lines, const SampleSource& source, const TokenRuns& runs,
              const Room& room) {
  constexpr std::size_t most_first = most_runs / 2;
  const std::size_t num_first = runs.size() > most_runs ? most_first : runs.size();
  const std::size_t num_last = std::min(runs.size() - num_first, most_runs - most_first);
  for (std::size_t r = 0; r < num_first; ++r)
    add_run(lines, source, runs[r], room);
  const auto between = std::span(runs).subspan(num_first, runs.size() - num_first - num_last);
  if (!between.empty()) add_gap(lines, num_tokens(between));
  for (std::size_t r = runs.size() - num_last; r < runs.size(); ++r)
    add_run(lines, source, runs[r], room);
}

std::string turn_lines(const SampleSource& source, std::span<const PackedToken> sample,
                       std::span<const Turn> turns, const Room& room) {
  const auto size = static_cast<std::size_t>(std::ssize(sample));
  std::string lines;
  int number = 0;
  for (std::size_t t = 0; t < turns.size(); ++t) {
    const auto begin = std::min(static_cast<std::size_t>(turns[t].begin), size);
    const auto next = t + 1 < turns.size() ? static_cast<std::size_t>(turns[t + 1].begin) : size;
    const auto end = std::min(next, size);
    if (begin >= end) continue;
    lines += fmt::format("    {}. {}\n", ++number, core::one_line(turns[t].role));
    add_turn(lines, source, token_runs(sample.subspan(begin, end - begin)), room);
  }
  return lines;
}

}  // namespace

std::string show(const SampleSource& source, std::span<const PackedToken> sample) {
  std::string lines;
  const TokenRuns runs = token_runs(sample);
  const std::size_t shown = std::min(runs.size(), most_runs);
  for (std::size_t r = 0; r < shown; ++r)
    add_run(lines, source, runs[r], usual_room);
  if (shown < runs.size()) add_gap(lines, num_tokens(std::span(runs).subspan(shown)));
  if (!lines.empty()) lines.pop_back();
  shorten(lines);
  return lines;
}

std::string show_turns(const SampleSource& source, std::span<const PackedToken> sample,
                       std::span<const Turn> turns, std::int64_t num_lost) {
  std::string lines;
  for (const Room& room : rooms) {
    lines = turn_lines(source, sample, turns, room);
    if (lines.size() <= most_shown_bytes) break;
  }
  if (!lines.empty()) lines.pop_back();
  shorten_middle(lines);
  if (num_lost > 0)
    lines += fmt::format("\n      (cut here: {} more than data.max_seq_length)",
                         core::with_commas(num_lost));
  return lines;
}

}  // namespace finetune::data
