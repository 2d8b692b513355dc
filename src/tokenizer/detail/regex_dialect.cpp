// SPDX-License-Identifier: Apache-2.0
// From Oniguruma's dialect (Ruby syntax) to PCRE2's. The two agree on nearly everything that
// tokenizers use; what they read differently is rewritten, and refused where that is not possible.

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/text.hpp"
#include "tokenizer/detail/regex.hpp"

namespace finetune::tokenizer {
namespace {

// \w of Oniguruma: https://github.com/kkos/oniguruma/blob/master/doc/RE, "word" (Unicode). Outside
// of brackets its tables count the superscripts and fractions of Latin-1 as well.
constexpr std::string_view word_in_brackets = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view word_alone =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
constexpr std::string_view hex_class = "0-9a-fA-F";

class Translation {
 public:
  Translation(std::string_view pattern, const std::string& place)
      : pattern_(pattern), place_(place) {}

  std::string run() {
    while (i_ < pattern_.size()) {
      if (pattern_[i_] == '\\') {
        escape();
      } else if (in_class_) {
        class_member();
      } else {
        plain();
      }
    }
    return out_;
  }

 private:
  char peek(std::size_t ahead) const {
    return i_ + ahead < pattern_.size() ? pattern_[i_ + ahead] : '\0';
  }

  [[noreturn]] void refuse(std::string_view what, std::string_view why) const {
    core::fail(core::ErrorKind::input,
               {core::one_line(place_),
                core::one_line(fmt::format("the pattern {} uses {}", pattern_, what)),
                std::string(why), "Use a tokenizer.json with another pattern."});
  }

  /// A class of characters given by the members of a bracket expression.
  void members(std::string_view list, bool negated) {
    if (in_class_ && negated) refuse("a negated word or hex class in brackets", "it has no equal");
    out_ += in_class_ ? std::string(list) : fmt::format("[{}{}]", negated ? "^" : "", list);
  }

  void escape() {
    const char kind = peek(1);
    const std::size_t start = i_;
    i_ += 2;
    switch (kind) {
      case '\0':
        return refuse("a backslash at its end", "nothing is escaped");
      case 's':
        out_ += R"(\p{White_Space})";  // PCRE2's \s also takes U+180E
        return;
      case 'S':
        out_ += R"(\P{White_Space})";
        return;
      case 'w':
        return members(in_class_ ? word_in_brackets : word_alone, false);
      case 'W':
        return members(word_alone, true);
      case 'h':
        return members(hex_class, false);
      case 'H':
        return members(hex_class, true);
      case 'b':
      case 'B':
        return word_boundary(kind == 'b');
      case 'u':
        return code_point();
      case 'G':
        return refuse("\\G", "a text is searched in windows, and it would match where each begins");
      default:
        // \p{...} and the like go over whole: their brace is no quantifier. Of an escaped character
        // of several bytes the rest follow as plain ones.
        if (peek(0) == '{' && std::string_view("pPxkgo").find(kind) != std::string_view::npos)
          i_ = std::min(pattern_.find('}', i_), pattern_.size() - 1) + 1;
        out_ += pattern_.substr(start, i_ - start);
    }
  }

  /// Between a word character and another one, by Oniguruma's idea of word characters.
  void word_boundary(bool wanted) {
    if (in_class_) {
      out_ += "\\x08";
      return;
    }
    out_ += fmt::format("(?:(?<=[{0}])(?{1}[{0}])|(?<![{0}])(?{2}[{0}]))", word_alone,
                        wanted ? "!" : "=", wanted ? "=" : "!");
  }

  void code_point() {
    const std::string_view digits = pattern_.substr(i_, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos)
      refuse("\\u without four digits", "no character is named");
    out_ += fmt::format("\\x{{{}}}", digits);
    i_ += 4;
  }

  void class_member() {
    const char c = pattern_[i_];
    if (c == '[') refuse("brackets inside brackets", "only Oniguruma reads them as a set");
    if (c == '&' && peek(1) == '&') refuse("&& in brackets", "only Oniguruma intersects sets");
    if (c == ']' && i_ > class_start_) in_class_ = false;
    out_ += c;
    ++i_;
  }

  void plain() {
    const char c = pattern_[i_];
    if (c == '[') {
      in_class_ = true;
      out_ += c;
      ++i_;
      if (peek(0) == '^') out_ += pattern_[i_++];
      class_start_ = i_;  // a bracket here stands for itself
      return;
    }
    if (c == '(' && peek(1) == '?') return group();
    if (c == '(' && peek(1) == '*') refuse("(*", "the two have other words for the matcher");
    if (c == '}' && peek(1) == '+')
      refuse("{n,m}+", "Oniguruma repeats, PCRE2 would not backtrack");
    out_ += c;
    ++i_;
  }

  /// `(?m)` of Ruby lets the dot match a line end, which is `(?s)` elsewhere.
  void group() {
    out_ += "(?";
    i_ += 2;
    std::size_t end = i_;
    while (end < pattern_.size() &&
           std::string_view("imx-").find(pattern_[end]) != std::string::npos)
      ++end;
    if (end == pattern_.size() || (pattern_[end] != ':' && pattern_[end] != ')')) return;
    for (; i_ < end; ++i_)
      out_ += pattern_[i_] == 'm' ? 's' : pattern_[i_];
  }

  std::string_view pattern_;
  const std::string& place_;
  std::string out_;
  std::size_t i_ = 0;
  std::size_t class_start_ = 0;
  bool in_class_ = false;
};

}  // namespace

std::string to_pcre2(std::string_view pattern, const std::string& place) {
  return Translation(pattern, place).run();
}

}  // namespace finetune::tokenizer
