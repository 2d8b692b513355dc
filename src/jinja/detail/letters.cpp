// SPDX-License-Identifier: Apache-2.0
#include "jinja/detail/letters.hpp"

#include <utf8proc.h>

namespace finetune::jinja::detail {
namespace {

template <typename F>
std::string mapped(std::string_view text, const F& of) {
  std::string made;
  for (const std::string_view character : characters_of(text)) {
    const auto code = static_cast<utf8proc_int32_t>(code_point(character));
    const utf8proc_int32_t other = of(code);
    if (other == code)
      made += character;
    else
      made += utf8_of(static_cast<char32_t>(other));
  }
  return made;
}

utf8proc_category_t category_of(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

bool is_letter(char32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool is_word(char32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return c == '_' || is_letter(c);
  }
}

bool is_decimal(char32_t c) {
  return category_of(c) == UTF8PROC_CATEGORY_ND;
}

bool is_printable(char32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

std::string upper(std::string_view text) {
  const Text upper(mapped(text, utf8proc_toupper));
  return replaced(upper, "\u1E9E", Text("SS"), -1).bytes();
}

std::string lower(std::string_view text) {
  return mapped(text, utf8proc_tolower);
}

std::string capitalised(std::string_view text) {
  std::string made;
  for (const std::string_view character : characters_of(text))
    made += made.empty() ? upper(character) : lower(character);
  return made;
}

std::string titled(std::string_view text) {
  std::string made;
  bool is_inside = false;
  for (const std::string_view character : characters_of(text)) {
    made += is_inside ? lower(character) : upper(character);
    is_inside = is_letter(code_point(character));
  }
  return made;
}

Text replaced(const Text& text, std::string_view old, const Text& by, std::int64_t most) {
  Text made;
  const std::string_view bytes = text.bytes();
  std::size_t done = 0;
  if (old.empty()) {
    for (const std::string_view character : characters_of(bytes)) {
      if (most != 0) {
        made += by;
        --most;
      }
      made += text.part(character);
    }
    if (most != 0) made += by;
    return made;
  }
  for (std::size_t at; most != 0 && (at = bytes.find(old, done)) != std::string_view::npos;
       --most) {
    made += text.part(done, at - done);
    made += by;
    done = at + old.size();
  }
  made += text.part(done, bytes.size() - done);
  return made;
}

}  // namespace finetune::jinja::detail
