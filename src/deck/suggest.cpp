// SPDX-License-Identifier: Apache-2.0
#include "deck/suggest.hpp"

#include <algorithm>

#include "core/text.hpp"

namespace finetune::deck {
namespace {

// Nobody means a key by a longer name; it also bounds the time a hostile deck can take.
constexpr std::size_t longest_name_bytes = 64;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

}  // namespace

std::optional<std::string> closest(std::string_view name,
                                   const std::vector<std::string>& candidates) {
  if (name.size() > longest_name_bytes) return std::nullopt;
  std::vector<std::string> lowered(candidates.size());
  std::transform(candidates.begin(), candidates.end(), lowered.begin(), lower);
  const auto best = core::nearest(lower(name), lowered);
  if (!best) return std::nullopt;
  const auto found = std::find(lowered.begin(), lowered.end(), *best);
  return candidates[static_cast<std::size_t>(found - lowered.begin())];
}

std::string list(const std::vector<std::string>& names, std::string_view open,
                 std::string_view close) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += ", ";
    text += open;
    text += name;
    text += close;
  }
  return text;
}

}  // namespace finetune::deck
