// SPDX-License-Identifier: Apache-2.0
#include "jinja/detail/lexer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "jinja/detail/characters.hpp"
#include "jinja/value.hpp"

namespace finetune::jinja {
namespace {

/// Every way to end a line becomes \n, and one at the very end may be dropped.
std::string with_lines(std::string_view text, bool keeps_last) {
  std::string lines;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      if (i + 1 < text.size() && text[i + 1] == '\n') continue;
      lines += '\n';
    } else {
      lines += text[i];
    }
  }
  if (!keeps_last && lines.ends_with('\n')) lines.pop_back();
  return lines;
}

bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  Lexer(std::string_view text, const Settings& settings)
      : settings_(settings), text_(with_lines(text, settings.keeps_last_newline)) {}

  std::vector<Token> run() && {
    while (at_ < text_.size())
      data();
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Problem(fmt::format("line {}: {}", line_, problem));
  }

  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }

  bool sees(std::string_view word) const {
    return std::string_view(text_).substr(at_).starts_with(word);
  }

  void advance(std::size_t count) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at_ + count),
                                         '\n'));
    at_ += count;
    begins_line_ = count > 0 && text_[at_ - 1] == '\n';
  }

  void skip_space() {
    const std::string_view rest = std::string_view(text_).substr(at_);
    advance(rest.size() - stripped(rest, Ends::left).size());
  }

  /// Up to the next {{, {% or {#, and what that begins.
  void data() {
    std::size_t begin = at_;
    for (;; ++begin) {
      begin = text_.find('{', begin);
      if (begin == std::string::npos || begin + 1 >= text_.size()) {
        add_data(std::string_view(text_).substr(at_));
        return advance(text_.size() - at_);
      }
      if (std::string_view("{%#").find(text_[begin + 1]) != std::string_view::npos) break;
    }
    const char kind = text_[begin + 1];
    const char sign = begin + 2 < text_.size() ? text_[begin + 2] : ' ';
    std::string_view before = std::string_view(text_).substr(at_, begin - at_);
    if (sign == '-')
      before = stripped(before, Ends::right);
    else if (sign != '+' && kind != '{')
      before = without_indentation(before);
    add_data(before);
    advance(begin - at_ + 2);
    if (sign == '-' || sign == '+') advance(1);
    if (kind == '#') return comment();
    if (kind == '%' && is_raw()) return raw();
    const bool is_block = kind == '%';
    add(is_block ? Token::Kind::block_begin : Token::Kind::variable_begin, "");
    code(is_block);
  }

  void add_data(std::string_view text) {
    if (!text.empty()) add(Token::Kind::data, std::string(text));
  }

  /// Without the spaces of a line that has nothing else before a block.
  std::string_view without_indentation(std::string_view text) const {
    if (!settings_.trims_blocks) return text;
    const std::size_t last = text.rfind('\n');
    const std::size_t line = last == std::string_view::npos ? 0 : last + 1;
    if (line == 0 && !begins_line_) return text;
    const bool is_blank = text.find_first_not_of(" \t", line) == std::string_view::npos;
    return is_blank ? text.substr(0, line) : text;
  }

  /// Behind a block or a comment; `sign` stood in front of its end.
  void end_of_block(char sign) {
    if (sign == '-')
      skip_space();
    else if (settings_.trims_blocks && sign != '+' && sees("\n"))
      advance(1);
  }

  void comment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string::npos) fail("a comment has no end");
    const char sign = end > at_ ? text_[end - 1] : ' ';
    advance(end + 2 - at_);
    end_of_block(sign);
  }

  bool is_raw() const {
    const std::string_view rest = stripped(std::string_view(text_).substr(at_), Ends::left);
    if (!rest.starts_with("raw")) return false;
    const std::string_view end = stripped(rest.substr(3), Ends::left);
    return end.starts_with("%}") || end.starts_with("-%}");
  }

  void raw() {
    const std::size_t open = text_.find("%}", at_);
    const bool strips = text_[open - 1] == '-';
    advance(open + 2 - at_);
    if (strips) skip_space();
    for (std::size_t begin = at_;; begin += 2) {
      begin = text_.find("{%", begin);
      if (begin == std::string::npos) fail("a raw block has no end");
      std::string_view rest = std::string_view(text_).substr(begin + 2);
      const char sign = rest.empty() ? ' ' : rest.front();
      if (sign == '-' || sign == '+') rest.remove_prefix(1);
      rest = stripped(rest, Ends::left);
      if (!rest.starts_with("endraw")) continue;
      rest = stripped(rest.substr(6), Ends::left);
      const char last = rest.empty() ? ' ' : rest.front();
      if (last == '-' || last == '+') rest.remove_prefix(1);
      if (!rest.starts_with("%}")) continue;
      std::string_view inside = std::string_view(text_).substr(at_, begin - at_);
      if (sign == '-')
        inside = stripped(inside, Ends::right);
      else if (sign != '+')
        inside = without_indentation(inside);
      add_data(inside);
      advance(text_.size() - rest.size() + 2 - at_);
      return end_of_block(last);
    }
  }

  /// Up to the end of the block or variable.
  void code(bool is_block) {
    const std::string_view end = is_block ? "%}" : "}}";
    std::string brackets;
    while (true) {
      skip_space();
      if (at_ >= text_.size()) fail(is_block ? "a block has no %}" : "a variable has no }}");
      if (brackets.empty() && ends(end, is_block)) return;
      const char c = text_[at_];
      if (begins_name(c))
        name();
      else if (is_digit(c))
        number();
      else if (c == '"' || c == '\'')
        string();
      else
        sign(brackets);
    }
  }

  bool ends(std::string_view end, bool is_block) {
    const char first = text_[at_];
    const bool is_signed = (first == '-' || (first == '+' && is_block)) &&
                           std::string_view(text_).substr(at_ + 1).starts_with(end);
    if (!is_signed && !sees(end)) return false;
    add(is_block ? Token::Kind::block_end : Token::Kind::variable_end, "");
    advance(end.size() + (is_signed ? 1 : 0));
    if (is_block)
      end_of_block(is_signed ? first : ' ');
    else if (is_signed)
      skip_space();
    return true;
  }

  void name() {
    std::size_t end = at_;
    while (end < text_.size() && (begins_name(text_[end]) || is_digit(text_[end])))
      ++end;
    add(Token::Kind::name, text_.substr(at_, end - at_));
    advance(end - at_);
  }

  /// Decimal ones, with _ between digits, and those of other bases.
  void number() {
    const char kind = at_ + 1 < text_.size() ? text_[at_ + 1] : ' ';
    const bool has_base =
        text_[at_] == '0' && std::string_view("xXoObB").find(kind) != std::string_view::npos;
    std::size_t end = at_ + (has_base ? 2 : 0);
    const auto take_digits = [&](std::string_view digits) {
      while (end < text_.size() && digits.find(text_[end]) != std::string_view::npos)
        ++end;
    };
    constexpr std::string_view decimal = "0123456789_";
    bool is_real = false;
    take_digits(has_base ? "0123456789abcdefABCDEF_" : decimal);
    const auto digit_at = [&](std::size_t i) { return i < text_.size() && is_digit(text_[i]); };
    if (!has_base && end < text_.size() && text_[end] == '.' && digit_at(end + 1)) {
      is_real = true;
      ++end;
      take_digits(decimal);
    }
    if (!has_base && end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const bool is_signed =
          end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-');
      if (digit_at(end + (is_signed ? 2 : 1))) {
        is_real = true;
        end += is_signed ? 2 : 1;
        take_digits(decimal);
      }
    }
    std::string digits = text_.substr(at_, end - at_);
    std::erase(digits, '_');
    add(is_real ? Token::Kind::real : Token::Kind::integer, digits);
    advance(end - at_);
  }

  void string() {
    const char quote = text_[at_];
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote)
      end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail("a string has no end");
    add(Token::Kind::string, unescaped(std::string_view(text_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  std::string unescaped(std::string_view text) const {
    std::string result;
    while (!text.empty()) {
      if (text.front() != '\\' || text.size() < 2) {
        result += text.front();
        text.remove_prefix(1);
        continue;
      }
      const char c = text[1];
      text.remove_prefix(2);
      constexpr std::string_view letters = "ntrabfv\\'\"", meanings = "\n\t\r\a\b\f\v\\'\"";
      const std::size_t at = letters.find(c);
      if (at != std::string_view::npos)
        result += meanings[at];
      else if (c == '\n')
        continue;
      else if (c == 'x' || c == 'u' || c == 'U')
        result += coded(text, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
      else if (c >= '0' && c <= '7')
        result += octal(text, c);
      else
        result += {'\\', c};
    }
    return result;
  }

  /// The character of so many digits, which are taken from `text`.
  std::string coded(std::string_view& text, std::size_t count, int base) const {
    const std::string digits(text.substr(0, count));
    if (digits.size() < count ||
        digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      fail("a string has an incomplete \\x, \\u or \\U");
    const unsigned long code = std::stoul(digits, nullptr, base);
    text.remove_prefix(count);
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail("a string has a \\u that is no character");
    return utf8_of(static_cast<char32_t>(code));
  }

  static std::string octal(std::string_view& text, char first) {
    char32_t code = static_cast<char32_t>(first - '0');
    for (int i = 0; i < 2 && !text.empty() && text.front() >= '0' && text.front() <= '7'; ++i) {
      code = 8 * code + static_cast<char32_t>(text.front() - '0');
      text.remove_prefix(1);
    }
    return utf8_of(code);
  }

  void sign(std::string& brackets) {
    static constexpr std::array<std::string_view, 24> all = {
        "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~",
        "(",  ")",  "[",  "]",  "{",  "}",  "<", ">", "=", ".", ":", "|"};
    std::string_view found = sees(",") ? "," : sees(";") ? ";" : "";
    for (const std::string_view sign : all)
      if (found.empty() && sees(sign)) found = sign;
    if (found.empty())
      fail(fmt::format("\"{}\" is not expected",
                       characters_of(std::string_view(text_).substr(at_, 4)).front()));
    if (found == "(" || found == "[" || found == "{") brackets += found;
    if (found == ")" || found == "]" || found == "}") {
      const char open = found == ")" ? '(' : found == "]" ? '[' : '{';
      if (!brackets.ends_with(open)) fail(fmt::format("\"{}\" closes nothing", found));
      brackets.pop_back();
    }
    add(Token::Kind::sign, std::string(found));
    advance(found.size());
  }

  Settings settings_;
  std::string text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool begins_line_ = true;  ///< what was read last ended a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view text, const Settings& settings) {
  return Lexer(text, settings).run();
}

}  // namespace finetune::jinja
