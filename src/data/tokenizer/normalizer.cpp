// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/normalizer.hpp"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "data/tokenizer/unicode.hpp"

namespace finetune::data::tokenizer {
namespace {

constexpr const char* supported_steps =
    "Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip";

constexpr std::size_t longest_prefix = 256;

/// Appends the decomposition of one character.
void decompose(std::vector<utf8proc_int32_t>& codes, char32_t code, utf8proc_option_t options) {
  std::array<utf8proc_int32_t, 32> parts;  // the longest has 18
  int boundary = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(),
                              static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
  core::check(count >= 0 && static_cast<std::size_t>(count) <= parts.size(),
              "utf8proc refused a character");
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

/// Unicode normalisation form (Unicode Standard Annex 15) of `text`.
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
  core::check(count >= 0, "utf8proc refused text that is valid UTF-8");
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_utf8(result, static_cast<char32_t>(codes[static_cast<std::size_t>(i)]));
  return result;
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

/// Whether a glance is enough to see that NFC would change nothing.
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

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const char32_t code = next_code_point(text, i);
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
    // The one character whose full lower case has two (SpecialCasing.txt).
    if (code == 0x130) append_utf8(out, 0x307);
  }
  return out;
}

std::string_view strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    std::size_t i = 0;
    if (!is_white_space(next_code_point(text, i))) break;
    text.remove_prefix(i);
  }
  while (right && !text.empty()) {
    const std::size_t start = previous_start(text, text.size());
    std::size_t i = start;
    if (!is_white_space(next_code_point(text, i))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

}  // namespace

Pattern Pattern::read(const JsonNode& node) {
  node.only({"String", "Regex"});
  if (const auto regex = node.find("Regex"))
    return Pattern(Regex(regex->as_text(), regex->place()));
  std::string text = node.text("String");
  if (text.empty()) node.refuse("the pattern is empty", "it would match between all characters");
  return Pattern(std::move(text));
}

std::optional<Range> Pattern::find(std::string_view text, std::size_t from,
                                   Matcher& matcher) const {
  if (const auto* regex = std::get_if<Regex>(&what_)) return regex->find(text, from, matcher);
  const std::string& wanted = std::get<std::string>(what_);
  const std::size_t begin = text.find(wanted, from);
  if (begin == std::string_view::npos) return std::nullopt;
  return Range{begin, begin + wanted.size()};
}

std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content,
                        Matcher& matcher) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  pattern.each(text, matcher, [&](Range range, bool is_match) {
    out += is_match ? content : text.substr(range.begin, range.end - range.begin);
    check_growth(text.size(), out.size());
  });
  return out;
}

Normalizer Normalizer::read(const std::optional<JsonNode>& node) {
  Normalizer normalizer;
  if (node) normalizer.add(*node);
  return normalizer;
}

void Normalizer::add(const JsonNode& node) {
  node.limit_steps(steps_.size());
  const std::string type = node.text("type");
  const auto form = [&](int options, bool composed) {
    node.only({"type"});
    steps_.push_back(Form{options | UTF8PROC_STABLE, composed});
  };
  if (type == "Sequence") {
    node.only({"type", "normalizers"});
    for (const JsonNode& step : node.list("normalizers"))
      add(step);
  } else if (type == "NFC") {
    form(UTF8PROC_COMPOSE, true);
  } else if (type == "NFD") {
    form(UTF8PROC_DECOMPOSE, false);
  } else if (type == "NFKC") {
    form(UTF8PROC_COMPOSE | UTF8PROC_COMPAT, false);
  } else if (type == "NFKD") {
    form(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, false);
  } else if (type == "Prepend") {
    node.only({"type", "prepend"});
    const std::string prefix = node.text("prepend");
    if (prefix.size() > longest_prefix)
      node.refuse("the prefix is too long", fmt::format("{} bytes are possible", longest_prefix));
    steps_.push_back(Prepend{prefix});
  } else if (type == "Replace") {
    node.only({"type", "pattern", "content"});
    steps_.push_back(Replace{Pattern::read(node.at("pattern")), node.text("content")});
  } else if (type == "Lowercase") {
    node.only({"type"});
    steps_.push_back(Lowercase{});
  } else if (type == "Strip") {
    node.only({"type", "strip_left", "strip_right"});
    steps_.push_back(Strip{node.boolean("strip_left"), node.boolean("strip_right")});
  } else {
    node.refuse_type(type, supported_steps);
  }
}

std::string_view Normalizer::apply(std::string_view text, Prefix prefix, std::string& buffer,
                                   Matcher& matcher) const {
  std::string_view now = text;
  const auto keep = [&](std::string changed) {
    check_growth(text.size(), changed.size());
    buffer = std::move(changed);
    now = buffer;
  };
  for (const Step& step : steps_) {
    if (const auto* prepend = std::get_if<Prepend>(&step)) {
      if (!now.empty() && prefix == Prefix::allowed) keep(prepend->text + std::string(now));
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      if (replace->pattern.find(now, 0, matcher))
        keep(replace_all(now, replace->pattern, replace->content, matcher));
    } else if (const auto* form = std::get_if<Form>(&step)) {
      if (!is_ascii(now) && !(form->composed && surely_composed(now)))
        keep(unicode_form(now, form->options));
    } else if (std::holds_alternative<Lowercase>(step)) {
      keep(lower_case(now));
    } else {
      const auto& ends = std::get<Strip>(step);
      keep(std::string(strip(now, ends.left, ends.right)));
    }
  }
  return now;
}

}  // namespace finetune::data::tokenizer
