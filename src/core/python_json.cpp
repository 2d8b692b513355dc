// SPDX-License-Identifier: Apache-2.0
#include "core/python_json.hpp"

#include <algorithm>
#include <array>

#include "core/file.hpp"

namespace finetune::core {
namespace {

constexpr std::array<std::string_view, 3> not_finite = {"-Infinity", "Infinity", "NaN"};

/// U+2063, which is not seen where a message quotes the value.
constexpr std::string_view bare_mark = "\xE2\x81\xA3";

/// The word of Python that starts `text`, or "".
std::string_view word_at(std::string_view text) {
  for (const std::string_view word : not_finite) {
    if (text.starts_with(word)) return word;
  }
  return {};
}

/// Calls `visit(piece, is_string)` for the strings of a JSON text, with their quotes, and for what
/// lies between them. A string that does not end ends with the text.
template <typename Visit>
void each_part(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t begin = std::min(text.find('"'), text.size());
    visit(text.substr(0, begin), false);
    std::size_t end = begin + 1;
    while (end < text.size() && text[end] != '"')
      end += text[end] == '\\' ? 2 : 1;
    end = std::min(end + 1, text.size());
    if (begin < text.size()) visit(text.substr(begin, end - begin), true);
    text.remove_prefix(begin < text.size() ? end : begin);
  }
}

}  // namespace

Json parse_python_json(std::string_view text, const std::string& where) {
  std::string plain;
  each_part(text, [&](std::string_view part, bool is_string) {
    while (!part.empty()) {
      const std::string_view word = is_string ? std::string_view() : word_at(part);
      const std::size_t length = is_string ? part.size() : std::max<std::size_t>(1, word.size());
      if (!word.empty()) (plain += '"') += bare_mark;
      plain += part.substr(0, length);
      if (!word.empty()) plain += '"';
      part.remove_prefix(length);
    }
  });
  return parse_json(plain, where);
}

std::string_view not_finite_word(const Json& value) {
  if (!value.is_string()) return {};
  std::string_view text = value.get_ref<const std::string&>();
  if (text.starts_with(bare_mark)) text.remove_prefix(bare_mark.size());
  const auto* const word = std::ranges::find(not_finite, text);
  return word == not_finite.end() ? std::string_view() : *word;
}

std::string dump_python_json(const Json& value) {
  std::string text;
  each_part(value.dump(2), [&](std::string_view part, bool is_string) {
    const bool may_be_bare = is_string && part.substr(1).starts_with(bare_mark);
    const std::string_view inner =
        may_be_bare ? part.substr(1 + bare_mark.size(), part.size() - 2 - bare_mark.size()) : "";
    const bool is_word = std::ranges::find(not_finite, inner) != not_finite.end();
    text += is_word ? inner : part;
  });
  return text + "\n";
}

Json read_python_json(const std::filesystem::path& path, std::int64_t limit_bytes) {
  return parse_python_json(read_text(path, limit_bytes), path.string());
}

}  // namespace finetune::core
