// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/unicode_form.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/error.hpp"
#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer {
namespace {

/// Appends the decomposition of one character.
void decompose(std::vector<utf8proc_int32_t>& codes, char32_t code, utf8proc_option_t options) {
  std::array<utf8proc_int32_t, 32> parts;  // the longest has 18
  int boundary = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(),
                              static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
  core::check(count >= 0 && static_cast<std::size_t>(count) <= parts.size(),
              "utf8proc rejected a character");
  codes.insert(codes.end(), parts.begin(), parts.begin() + count);
}

/// Canonical ordering: each run of marks by combining class, otherwise as they stood. utf8proc's
/// own takes quadratic time, and texts of a million marks exist.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto rank = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  const auto is_mark = [&](utf8proc_int32_t code) { return rank(code) != 0; };
  for (auto begin = codes.begin(); begin != codes.end();) {
    begin = std::find_if(begin, codes.end(), is_mark);
    const auto end = std::find_if_not(begin, codes.end(), is_mark);
    std::stable_sort(begin, end, [&](auto a, auto b) { return rank(a) < rank(b); });
    begin = end;
  }
}

/// Ranges of characters that are their own canonical composition wherever they stand: quick check
/// yes and combining class 0 (Unicode's DerivedNormalizationProps), assigned long ago.
constexpr std::array<std::array<char32_t, 2>, 9> composed_ranges{{{0x0, 0x2FF},
                                                                  {0x388, 0x482},
                                                                  {0x48A, 0x590},
                                                                  {0x1E00, 0x1F70},
                                                                  {0x2002, 0x20CF},
                                                                  {0x309B, 0xA66E},
                                                                  {0xAC00, 0xD7A3},
                                                                  {0xFE30, 0xFFFF},
                                                                  {0x1F000, 0x1FAFF}}};

}  // namespace

std::string unicode_form(std::string_view text, int options) {
  const auto flags = static_cast<utf8proc_option_t>(options);
  // Composition starts from what decomposition leaves.
  const auto taking_apart =
      static_cast<utf8proc_option_t>((options & ~UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE);
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (std::size_t i = 0; i < text.size();)
    decompose(codes, next_code_point(text, i), taking_apart);
  order_marks(codes);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), flags);
  core::check(count >= 0, "utf8proc rejected text that is valid UTF-8");
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_utf8(result, static_cast<char32_t>(codes[static_cast<std::size_t>(i)]));
  return result;
}

bool surely_composed(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0xCC) {  // below U+0300
      ++i;
      continue;
    }
    const char32_t code = next_code_point(text, i);
    const bool known = std::any_of(composed_ranges.begin(), composed_ranges.end(),
                                   [&](const auto& r) { return code >= r[0] && code <= r[1]; });
    if (!known) return false;
  }
  return true;
}

}  // namespace finetune::tokenizer
