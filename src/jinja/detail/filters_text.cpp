// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "jinja/detail/characters.hpp"
#include "jinja/detail/filters.hpp"
#include "jinja/detail/letters.hpp"
#include "jinja/detail/lines.hpp"

namespace finetune::jinja::detail {
namespace {

Value trim(const Filtering& f) {
  const Value chars = f.get(0, "chars");
  const Text text = f.written();
  return text.part(chars.is_none() ? stripped(text.bytes(), Ends::both)
                                   : stripped(text.bytes(), Ends::both, to_text(chars)));
}

/// The value of a filter that takes nothing but a string.
const Text& string_of(const Filtering& f) {
  require_defined(f.value);
  if (!f.value.is_string())
    throw Problem(fmt::format("{} asks for a string, not {}", f.name, f.value.type_name()));
  return f.value.text();
}

std::string indentation_of(const Value& width) {
  if (width.is_string()) return width.string();
  const std::int64_t spaces = integer_of(width, "indent: width");
  return std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(spaces, 0, 10'000)), ' ');
}

/// In the place of the end of a line of `whole`, and of its origin.
Text newline_of(const Text& whole, const Line& line) {
  return whole.part(line.end.substr(0, 1)).with_bytes("\n");
}

/// Line ends become \n, as Python's Jinja splits a text and joins its lines.
Value indent(const Filtering& f) {
  const std::string indentation = indentation_of(f.get(0, "width", 4));
  const bool first = f.get(1, "first", false).is_true(), blank = f.get(2, "blank", false).is_true();
  const Text& whole = string_of(f);
  std::vector<Line> lines = lines_of(whole.bytes());
  // It adds \n before it splits: that begins a line behind any line end but \r, which becomes \r\n.
  if (lines.empty() || !(lines.back().end.empty() || lines.back().end == "\r"))
    lines.push_back({.text = std::string_view(whole.bytes()).substr(whole.size()), .end = {}});
  f.budget.spend_bytes(static_cast<std::int64_t>(lines.size() * indentation.size()));
  Text text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += newline_of(whole, lines[i - 1]);
    const Text line = whole.part(lines[i].text);
    const bool has_indentation = i == 0 ? first : blank || line.size() > 0;
    if (has_indentation) text.append(indentation, line.data_origin());
    text += line;
  }
  return text;
}

/// Each line by itself. Where it is wrapped, the line end is said by whoever says the line.
Value wrap_words(const Filtering& f) {
  const Text& whole = string_of(f);
  const WrapStyle style{.width = f.integer(0, "width", 79),
                        .breaks_long_words = f.get(1, "break_long_words", true).is_true(),
                        .breaks_on_hyphens = f.get(3, "break_on_hyphens", true).is_true()};
  if (style.width < 1) throw Problem("wordwrap: width is at least 1");
  const Value own = f.get(2, "wrapstring");
  const Text between = own.is_none() ? Text() : to_written(own);
  const std::vector<Line> lines = lines_of(whole.bytes());
  Text text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::vector<std::string_view> parts = wrapped(lines[i].text, style);
    if (parts.empty()) parts.push_back(lines[i].text.substr(0, 0));
    f.budget.spend_bytes(std::ssize(parts) * static_cast<std::int64_t>(between.size()));
    for (std::size_t k = 0; k < parts.size(); ++k) {
      if (k + i > 0 && !own.is_none())
        text += between;
      else if (k > 0)
        text.append("\n", whole.part(parts[k - 1]).data_origin());
      else if (i > 0)
        text += newline_of(whole, lines[i - 1]);
      text += whole.part(parts[k]);
    }
  }
  return text;
}

Value escape(const Filtering& f) {
  std::string text;
  for (const char c : f.text()) {
    switch (c) {
      case '&':
        text += "&amp;";
        break;
      case '<':
        text += "&lt;";
        break;
      case '>':
        text += "&gt;";
        break;
      case '\'':
        text += "&#39;";
        break;
      case '"':
        text += "&#34;";
        break;
      default:
        text += c;
    }
  }
  return f.written().with_bytes(std::move(text));
}

/// A word begins behind white space, a dash or an opening bracket.
Value title(const Filtering& f) {
  std::string text;
  bool begins = true;
  const std::string words = f.text();
  for (const std::string_view c : characters_of(words)) {
    const bool is_between =
        is_space(code_point(c)) || c == "-" || c == "(" || c == "{" || c == "[" || c == "<";
    text += begins ? upper(c) : lower(c);
    begins = is_between;
  }
  return f.written().with_bytes(std::move(text));
}

Value truncate(const Filtering& f) {
  const std::int64_t length = f.integer(0, "length", 255), leeway = f.integer(3, "leeway", 5);
  const std::string end = to_text(f.get(2, "end", "..."));
  const Text text = f.written();
  const auto characters = characters_of(text.bytes());
  if (static_cast<std::int64_t>(characters.size()) <= length + leeway) return text;
  const std::int64_t kept = length - num_characters(end);
  if (kept < 0) throw Problem("truncate: the end is longer than what it ends");
  std::string cut;
  for (std::int64_t i = 0; i < kept; ++i)
    cut += characters[static_cast<std::size_t>(i)];
  if (!f.get(1, "killwords", false).is_true()) cut = cut.substr(0, cut.rfind(' '));
  Text whole = text.part(0, cut.size());
  whole.append(end);
  return whole;
}

Value word_count(const Filtering& f) {
  std::int64_t number = 0;
  bool is_inside = false;
  const std::string text = f.text();
  for (const std::string_view c : characters_of(text)) {
    const bool is_of_word = is_word(code_point(c));
    if (is_of_word && !is_inside) ++number;
    is_inside = is_of_word;
  }
  return number;
}

Value json(const Filtering& f) {
  JsonStyle style;
  style.is_ascii = f.get(0, "ensure_ascii", false).is_true();
  const Value indent = f.get(1, "indent");
  if (!indent.is_none())
    style.indent = std::clamp<std::int64_t>(integer_of(indent, "tojson: indent"), 0, 100);
  const Value separators = f.get(2, "separators");
  if (!separators.is_none()) {
    const std::vector<Value> both = elements_of(separators);
    if (both.size() != 2) throw Problem("tojson: separators are two strings");
    style.separators = {to_text(both[0]), to_text(both[1])};
  }
  style.sorts_keys = f.get(3, "sort_keys", false).is_true();
  std::string text = to_json(f.value, style);
  f.budget.spend_bytes(static_cast<std::int64_t>(text.size()));
  return Text(std::move(text), data_origin(f.value));
}

Value replace(const Filtering& f) {
  const Value old = f.get(0, "old", Value::Undefined{"replace's text"});
  const Value by = f.get(1, "new", Value::Undefined{"replace's other text"});
  require_defined(old);
  require_defined(by);
  const Value count = f.get(2, "count");
  Text text = replaced(f.written(), to_text(old), to_written(by),
                       count.is_none() ? -1 : integer_of(count, "replace: count"));
  f.budget.spend_bytes(static_cast<std::int64_t>(text.size()));
  return text;
}

Value format(const Filtering& f) {
  return compute(Operation::remainder, f.written(), Value::tuple(f.arguments.positional), f.budget);
}

/// Bytes that may stand in an address as they are.
bool is_plain_in_url(char c, bool is_query) {
  constexpr std::string_view signs = "_.-~";
  const bool is_letter_of_ascii = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return is_letter_of_ascii || (c >= '0' && c <= '9') || signs.find(c) != std::string_view::npos ||
         (c == '/' && !is_query);
}

std::string url_encoded(std::string_view text, bool is_query) {
  std::string encoded;
  for (const char c : text) {
    if (is_plain_in_url(c, is_query))
      encoded += c;
    else if (c == ' ' && is_query)
      encoded += '+';
    else
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

/// A text, or the pairs of a query.
Value url_encode(const Filtering& f) {
  require_defined(f.value);
  if (f.value.is_string() || !(f.value.is_sequence() || f.value.is_mapping()))
    return f.written().with_bytes(url_encoded(f.text(), false));
  std::string query;
  const bool is_mapping = f.value.is_mapping();
  for (const Value& one :
       is_mapping ? elements_of(call(attribute_of(f.value, "items", f.budget), {}, "items"))
                  : f.elements()) {
    const std::vector<Value> pair = elements_of(one);
    if (pair.size() != 2) throw Problem("urlencode asks for a string, a dict or pairs");
    query += (query.empty() ? "" : "&") + url_encoded(to_text(pair[0]), true) + "=" +
             url_encoded(to_text(pair[1]), true);
  }
  return Text(std::move(query), data_origin(f.value));
}

Value center(const Filtering& f) {
  const Value text = f.written();
  return call(*method_of_string(text, "center", f.budget), {{f.integer(0, "width", 80)}}, "center");
}

}  // namespace

const FilterTable& filters_of_text() {
  static const FilterTable all = {
      {"trim", trim},
      {"indent", indent},
      {"escape", escape},
      {"e", escape},
      {"forceescape", escape},
      {"safe", [](const Filtering& f) -> Value { return f.written(); }},
      {"string", [](const Filtering& f) -> Value { return f.written(); }},
      {"upper",
       [](const Filtering& f) -> Value { return f.written().with_bytes(upper(f.text())); }},
      {"lower",
       [](const Filtering& f) -> Value { return f.written().with_bytes(lower(f.text())); }},
      {"capitalize",
       [](const Filtering& f) -> Value { return f.written().with_bytes(capitalised(f.text())); }},
      {"title", title},
      {"truncate", truncate},
      {"wordcount", word_count},
      {"wordwrap", wrap_words},
      {"urlencode", url_encode},
      {"tojson", json},
      {"replace", replace},
      {"format", format},
      {"center", center},
  };
  return all;
}

}  // namespace finetune::jinja::detail
