#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether a page or a picture is put together well: every element ends, in order, and every
// attribute has its quotes.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::tests {

namespace detail {

inline bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

/// What is wrong with the attributes in `text`.
inline std::string attribute_problem(std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == ' ' || text[i] == '\n') {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && is_name(text[end]))
      ++end;
    const std::string name(text.substr(i, end - i));
    if (name.empty()) return "no attribute: " + std::string(text.substr(i, 20));
    if (std::ranges::find(names, name) != names.end()) return "twice the attribute " + name;
    names.push_back(name);
    i = end;
    if (i >= text.size() || text[i] != '=') continue;  // HTML's, without a value
    if (i + 1 >= text.size() || text[i + 1] != '"') return "no quotes after " + name;
    const std::size_t close = text.find('"', i + 2);
    if (close == std::string_view::npos) return "no closing quote of " + name;
    if (text.substr(i + 2, close - i - 2).find('<') != std::string_view::npos)
      return "a tag in the attribute " + name;
    i = close + 1;
  }
  return "";
}

inline bool is_entity(std::string_view text) {
  for (const std::string_view entity : {"&lt;", "&gt;", "&amp;", "&quot;", "&#39;"})
    if (text.starts_with(entity)) return true;
  return false;
}

}  // namespace detail

/// The first problem; empty if there is none. Elements that HTML does not close count as closed.
inline std::string markup_problem(std::string_view text) {
  std::vector<std::string> open;
  if (text.starts_with("<!doctype html>")) text.remove_prefix(15);
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '&' && !detail::is_entity(text.substr(i)))
      return "a bare &: " + std::string(text.substr(i, 20));
    if (text[i] == '>') return "a bare >: " + std::string(text.substr(i, 20));
    if (text[i] != '<') {
      if (open.empty() && text[i] != '\n')
        return "text outside: " + std::string(text.substr(i, 20));
      ++i;
      continue;
    }
    const std::size_t end = text.find('>', i);
    if (end == std::string_view::npos) return "a tag without an end";
    std::string_view tag = text.substr(i + 1, end - i - 1);
    i = end + 1;
    if (tag.starts_with("/")) {
      if (open.empty() || open.back() != tag.substr(1))
        return "unexpected </" + std::string(tag.substr(1)) + ">";
      open.pop_back();
      continue;
    }
    const bool is_closed = tag.ends_with("/");
    if (is_closed) tag.remove_suffix(1);
    const std::size_t name_end = std::min(tag.find_first_of(" \n"), tag.size());
    const std::string name(tag.substr(0, name_end));
    if (name.empty() || !std::ranges::all_of(name, detail::is_name))
      return "no element: <" + std::string(tag);
    if (auto problem = detail::attribute_problem(tag.substr(name_end)); !problem.empty())
      return problem + " in <" + name + ">";
    if (is_closed || name == "meta") continue;
    open.push_back(name);
    if (name == "style") i = std::min(text.find("</style>", i), text.size());
  }
  return open.empty() ? "" : "<" + open.back() + "> does not end";
}

}  // namespace finetune::tests
