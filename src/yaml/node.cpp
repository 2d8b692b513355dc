// SPDX-License-Identifier: Apache-2.0
// What values mean.
#include "yaml/node.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "core/text.hpp"

namespace finetune::yaml {
namespace {

constexpr std::size_t longest_shown = 60;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

template <std::size_t N>
bool is_one_of(const std::string& word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string shorter(std::string text) {
  text = core::one_line(text);
  if (text.size() <= longest_shown) return text;
  std::size_t end = longest_shown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return text.substr(0, end) + "...";
}

}  // namespace

bool Node::is_empty() const {
  if (kind == Kind::nothing) return true;
  if (kind == Kind::list) return items.empty();
  if (kind == Kind::map) return entries.empty();
  return text.empty() || text == "None" || text == "none";
}

bool Node::is_off() const {
  if (is_empty()) return true;
  const auto flag = boolean();
  const auto value = number();
  return (flag && !*flag) || (value && *value == 0);
}

std::optional<bool> Node::boolean() const {
  if (!is_text()) return std::nullopt;
  const std::string word = lower(text);
  if (is_one_of<4>(word, {"true", "yes", "on", "y"})) return true;
  if (is_one_of<4>(word, {"false", "no", "off", "n"})) return false;
  return std::nullopt;
}

std::optional<double> Node::number() const {
  if (!is_text() || text.empty() || text.size() > 40) return std::nullopt;
  std::string digits = text;
  std::erase(digits, '_');
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || c == '.'; };
  const std::size_t first = digits.find_first_not_of("+-");
  if (first == std::string::npos || first > 1 || !is_digit(digits[first])) return std::nullopt;
  if (digits.find_first_of("xXpP") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (*end != '\0' || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> Node::integer() const {
  const auto value = number();
  if (!value || std::floor(*value) != *value || std::abs(*value) > 9e15) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

const Node* Node::find(std::string_view path) const {
  for (const auto& [key, value] : entries) {
    if (key == path) return &value;
  }
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) return nullptr;
  for (const auto& [key, value] : entries) {
    if (key == path.substr(0, dot)) return value.find(path.substr(dot + 1));
  }
  return nullptr;
}

std::string Node::shown() const {
  if (kind == Kind::nothing) return "null";
  if (kind == Kind::text) return shorter(text.empty() ? "\"\"" : text);
  std::string all;
  for (const Node& item : items) {
    if (all.size() > longest_shown) break;
    all += (all.empty() ? "" : ", ") + item.shown();
  }
  for (const auto& [key, value] : entries) {
    if (all.size() > longest_shown) break;
    all += (all.empty() ? "" : ", ") + key + ": " + value.shown();
  }
  return shorter(is_list() ? "[" + all + "]" : "{" + all + "}");
}

}  // namespace finetune::yaml
