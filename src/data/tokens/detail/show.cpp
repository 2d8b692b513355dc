// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/show.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/text.hpp"

namespace finetune::data {
namespace {

constexpr std::size_t longest_run = 300;
constexpr std::size_t head = 200;
constexpr std::size_t tail = 50;
constexpr std::size_t most_runs = 12;
/// Tokens may be long, and the text is kept where there is little room.
constexpr std::size_t most_shown_bytes = 16384;

/// Cuts off what is too much, between two characters.
void shorten(std::string& lines) {
  if (lines.size() <= most_shown_bytes) return;
  lines.resize(core::first_bytes(lines, most_shown_bytes).size());
  lines += "\n      (the rest is left out)";
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

void add_run(std::string& lines, const SampleSource& source, std::span<const PackedToken> run) {
  const char mark = run[0].trained() ? '+' : '-';
  const auto add = [&](std::span<const PackedToken> tokens) {
    std::vector<std::int32_t> ids;
    for (const PackedToken token : tokens)
      ids.push_back(token.id());
    add_text(lines, mark, run[0].trained() ? source.trained_text(ids) : source.text(ids));
  };
  if (run.size() <= longest_run) return add(run);
  add(run.first(head));
  lines += fmt::format("      ({} tokens left out)\n",
                       core::with_commas(static_cast<std::int64_t>(run.size() - head - tail)));
  add(run.last(tail));
}

}  // namespace

std::string show(const SampleSource& source, std::span<const PackedToken> sample) {
  std::string lines;
  std::size_t runs = 0;
  while (!sample.empty() && runs++ < most_runs) {
    const bool trained = sample[0].trained();
    const auto end =
        std::ranges::find_if(sample, [&](PackedToken token) { return token.trained() != trained; });
    const auto run = sample.first(static_cast<std::size_t>(end - sample.begin()));
    add_run(lines, source, run);
    sample = sample.subspan(run.size());
  }
  if (!sample.empty())
    lines += fmt::format("      ({} tokens left out)\n", core::with_commas(std::ssize(sample)));
  if (!lines.empty()) lines.pop_back();
  shorten(lines);
  return lines;
}

}  // namespace finetune::data
