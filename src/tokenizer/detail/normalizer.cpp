// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/normalizer.hpp"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "tokenizer/detail/base64.hpp"
#include "tokenizer/detail/unicode.hpp"
#include "tokenizer/detail/unicode_form.hpp"

namespace finetune::tokenizer {
namespace {

constexpr const char* supported_steps =
    "Sequence, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Prepend, Replace, Lowercase, Strip, "
    "StripAccents";

constexpr std::size_t longest_prefix = 256;

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

/// `text` with each character replaced: `map(code, out)` appends what comes instead.
template <typename Map>
std::string map_characters(std::string_view text, const Map& map) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();)
    map(next_code_point(text, i), out);
  return out;
}

std::string lower_case(std::string_view text) {
  return map_characters(text, [](char32_t code, std::string& out) {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
    // The one character whose full lower case has two (SpecialCasing.txt).
    if (code == 0x130) append_utf8(out, 0x307);
  });
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

/// Characters that the Nmt step takes out, and those it turns into spaces.
bool is_dropped(char32_t code) {
  return (code >= 0x01 && code <= 0x08) || code == 0x0B || (code >= 0x0E && code <= 0x1F) ||
         code == 0x7F || code == 0x8F || code == 0x9F;
}
bool is_blank(char32_t code) {
  return code == 0x09 || code == 0x0A || code == 0x0C || code == 0x0D || code == 0x1680 ||
         (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
         code == 0xFEFF || code == 0xFFFD;
}

std::string without_controls(std::string_view text) {
  return map_characters(text, [](char32_t code, std::string& out) {
    if (!is_dropped(code)) append_utf8(out, is_blank(code) ? U' ' : code);
  });
}

std::string without_marks(std::string_view text) {
  return map_characters(text, [](char32_t code, std::string& out) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    if (category < UTF8PROC_CATEGORY_MN || category > UTF8PROC_CATEGORY_ME) append_utf8(out, code);
  });
}

Charsmap read_charsmap(const JsonNode& node) {
  node.only({"type", "precompiled_charsmap"});
  const auto blob = from_base64(node.text("precompiled_charsmap"));
  auto map = blob ? Charsmap::read(*blob) : std::nullopt;
  if (!map) node.refuse("the precompiled map is damaged", "its trie cannot be read");
  return std::move(*map);
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

std::optional<ByteRange> Pattern::find(std::string_view text, std::size_t from,
                                       Matcher& matcher) const {
  if (const auto* regex = std::get_if<Regex>(&what_)) return regex->find(text, from, matcher);
  const std::string& wanted = std::get<std::string>(what_);
  const std::size_t begin = text.find(wanted, from);
  if (begin == std::string_view::npos) return std::nullopt;
  return ByteRange{begin, begin + wanted.size()};
}

std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content,
                        Matcher& matcher) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  pattern.each(text, matcher, [&](ByteRange range, bool is_match) {
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

Normalizer Normalizer::composed() {
  Normalizer normalizer;
  normalizer.steps_.push_back(Form{UTF8PROC_COMPOSE | UTF8PROC_STABLE, true});
  return normalizer;
}

Normalizer Normalizer::of(SentencePieceNormalizer step) {
  Normalizer normalizer;
  normalizer.steps_.push_back(std::move(step));
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
  } else if (type == "Precompiled") {
    steps_.push_back(Precompiled{read_charsmap(node)});
  } else if (type == "Nmt" || type == "StripAccents") {
    node.only({"type"});
    if (type == "Nmt") {
      steps_.push_back(Nmt{});
    } else {
      steps_.push_back(StripAccents{});
    }
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
    } else if (std::holds_alternative<Nmt>(step)) {
      keep(without_controls(now));
    } else if (std::holds_alternative<StripAccents>(step)) {
      if (!is_ascii(now)) keep(without_marks(now));
    } else if (const auto* map = std::get_if<Precompiled>(&step)) {
      keep(map->map.map_clusters(now));
    } else if (const auto* pieces = std::get_if<SentencePieceNormalizer>(&step)) {
      keep(pieces->apply(now, prefix == Prefix::allowed));
    } else {
      const auto& ends = std::get<Strip>(step);
      keep(std::string(strip(now, ends.left, ends.right)));
    }
  }
  return now;
}

}  // namespace finetune::tokenizer
