// SPDX-License-Identifier: Apache-2.0
#include "jinja/detail/lines.hpp"

#include <algorithm>
#include <utility>

#include "jinja/detail/characters.hpp"
#include "jinja/detail/letters.hpp"

namespace finetune::jinja::detail {
namespace {

/// Bytes of the line end that `text` begins with; 0: it begins with none.
std::size_t length_of_end(std::string_view text) {
  switch (text.front()) {
    case '\r':
      return text.starts_with("\r\n") ? 2 : 1;
    case '\n':
    case '\v':
    case '\f':
    case '\x1c':
    case '\x1d':
    case '\x1e':
      return 1;
    case '\xc2':
      return text.starts_with("\xc2\x85") ? 2 : 0;
    case '\xe2':
      return text.starts_with("\u2028") || text.starts_with("\u2029") ? 3 : 0;
    default:
      return 0;
  }
}

/// Places of characters in a row.
struct Chunk {
  std::size_t begin = 0, end = 0;

  std::int64_t length() const { return static_cast<std::int64_t>(end - begin); }
};

/// Of ASCII's white space, which alone separates words here.
bool is_separator(char32_t c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/// Words of a line, parts of them that end with a hyphen, dashes and white space. Source: the
/// regular expressions of Python's textwrap (wordsep_re, wordsep_simple_re).
class Chunks {
 public:
  Chunks(const std::vector<std::string_view>& characters, bool breaks_on_hyphens)
      : breaks_on_hyphens_(breaks_on_hyphens) {
    codes_.reserve(characters.size());
    for (const std::string_view character : characters)
      codes_.push_back(code_point(character));
  }

  std::vector<Chunk> all() const {
    std::vector<Chunk> chunks;
    for (std::size_t begin = 0; begin < codes_.size(); begin = chunks.back().end)
      chunks.push_back({begin, end_behind(begin)});
    return chunks;
  }

 private:
  /// 0 outside of the line, also in front of it, where unsigned places wrap around.
  char32_t at(std::size_t i) const { return i < codes_.size() ? codes_[i] : U'\0'; }
  bool is_end(std::size_t i) const { return i >= codes_.size() || is_separator(codes_[i]); }
  /// A character of a word but a decimal digit.
  bool is_name_letter(std::size_t i) const { return is_word(at(i)) && !is_decimal(at(i)); }
  bool may_precede_dash(std::size_t i) const {
    constexpr std::u32string_view signs = U"!\"'&.,?";
    return is_word(at(i)) || signs.find(at(i)) != std::u32string_view::npos;
  }

  std::size_t end_behind(std::size_t begin) const {
    std::size_t end = begin;
    while (end < codes_.size() && is_separator(codes_[end]))
      ++end;
    if (end > begin) return end;
    if (is_dash(begin)) return end_of_dash(begin);
    for (end = begin + 1; !is_end(end); ++end) {
      if (!breaks_on_hyphens_) continue;
      if (is_hyphen(end)) return end + 1;
      if (is_dash(end)) break;
    }
    return end;
  }

  std::size_t end_of_dash(std::size_t begin) const {
    std::size_t end = begin;
    while (at(end) == '-')
      ++end;
    return end;
  }

  /// Several -, between words.
  bool is_dash(std::size_t begin) const {
    if (!breaks_on_hyphens_ || at(begin) != '-' || !may_precede_dash(begin - 1)) return false;
    const std::size_t end = end_of_dash(begin);
    return end - begin > 1 && is_word(at(end));
  }

  /// Within a word, behind which a line may end.
  bool is_hyphen(std::size_t i) const {
    if (at(i) != '-' || !is_name_letter(i - 1) || !is_name_letter(i + 1)) return false;
    const bool is_behind_word =
        is_name_letter(i - 2) || (at(i - 2) == '-' && is_name_letter(i - 3));
    return is_behind_word && (is_name_letter(i + 2) || (at(i + 2) == '-' && is_name_letter(i + 3)));
  }

  std::vector<char32_t> codes_;
  bool breaks_on_hyphens_;
};

class Wrapping {
 public:
  Wrapping(std::string_view line, const WrapStyle& style)
      : style_(style),
        characters_(characters_of(line)),
        chunks_(Chunks(characters_, style.breaks_on_hyphens).all()) {}

  std::vector<std::string_view> lines() && {
    std::vector<std::string_view> all;
    while (next_ < chunks_.size()) {
      if (!all.empty() && is_blank(chunks_[next_])) ++next_;
      std::vector<Chunk> taken = take();
      if (!taken.empty() && is_blank(taken.back())) taken.pop_back();
      if (!taken.empty()) all.push_back(text_of({taken.front().begin, taken.back().end}));
    }
    return all;
  }

 private:
  /// As many as are as wide as a line, and of the next what a line can have of it at all.
  std::vector<Chunk> take() {
    std::vector<Chunk> taken;
    std::int64_t room = style_.width;
    for (; next_ < chunks_.size() && chunks_[next_].length() <= room; ++next_) {
      room -= chunks_[next_].length();
      taken.push_back(chunks_[next_]);
    }
    if (next_ == chunks_.size() || chunks_[next_].length() <= style_.width) return taken;
    if (style_.breaks_long_words)
      taken.push_back(cut(chunks_[next_], static_cast<std::size_t>(room)));
    else if (taken.empty())
      taken.push_back(chunks_[next_++]);
    return taken;
  }

  /// Takes at most `room` characters, up to a hyphen if there is one behind something else.
  Chunk cut(Chunk& chunk, std::size_t room) const {
    const auto is_dash = [&](std::size_t i) { return characters_[i] == "-"; };
    std::size_t end = chunk.begin + room;
    for (std::size_t i = end; style_.breaks_on_hyphens && i-- > chunk.begin + 1;) {
      if (!is_dash(i)) continue;
      std::size_t first = chunk.begin;
      while (first < i && is_dash(first))
        ++first;
      if (first < i) end = i + 1;
      break;
    }
    return {std::exchange(chunk.begin, end), end};
  }

  std::string_view text_of(Chunk chunk) const {
    const char* begin = characters_[chunk.begin].data();
    const std::string_view last = characters_[chunk.end - 1];
    return {begin, static_cast<std::size_t>(last.data() + last.size() - begin)};
  }
  /// White space, or nothing.
  bool is_blank(Chunk chunk) const {
    return std::all_of(characters_.begin() + std::ptrdiff_t(chunk.begin),
                       characters_.begin() + std::ptrdiff_t(chunk.end),
                       [](std::string_view c) { return is_space(code_point(c)); });
  }

  WrapStyle style_;
  std::vector<std::string_view> characters_;
  std::vector<Chunk> chunks_;
  std::size_t next_ = 0;  ///< the first of those that are left
};

}  // namespace

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = length_of_end(text.substr(at));
    if (length > 0) {
      lines.push_back({text.substr(begin, at - begin), text.substr(at, length)});
      begin = at + length;
    }
    at += std::max<std::size_t>(1, length);
  }
  if (begin < text.size()) lines.push_back({text.substr(begin), text.substr(text.size())});
  return lines;
}

std::vector<std::string_view> wrapped(std::string_view line, const WrapStyle& style) {
  return Wrapping(line, style).lines();
}

}  // namespace finetune::jinja::detail
