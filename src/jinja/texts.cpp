// SPDX-License-Identifier: Apache-2.0
// Values as text: Python's str, repr and json.dumps.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/detail/characters.hpp"
#include "jinja/detail/letters.hpp"
#include "jinja/value.hpp"

namespace finetune::jinja {
namespace {

constexpr int deepest = 100;

void require_shallow(int depth) {
  if (depth > deepest) throw Problem("a value is nested too deeply");
}

std::string escaped(char32_t c) {
  if (c < 0x100) return fmt::format("\\x{:02x}", static_cast<unsigned>(c));
  if (c < 0x10000) return fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  return fmt::format("\\U{:08x}", static_cast<unsigned>(c));
}

std::string repr_of(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string repr(1, quote);
  for (const std::string_view character : characters_of(text)) {
    const char32_t c = code_point(character);
    if (c == static_cast<char32_t>(quote) || c == '\\')
      repr += {'\\', static_cast<char>(c)};
    else if (c == '\n')
      repr += "\\n";
    else if (c == '\r')
      repr += "\\r";
    else if (c == '\t')
      repr += "\\t";
    else if (detail::is_printable(c))
      repr += character;
    else
      repr += escaped(c);
  }
  return repr + quote;
}

std::string repr(const Value& value, int depth);

std::string sequence_repr(const Sequence& sequence, int depth) {
  std::string text(1, sequence.is_tuple ? '(' : '[');
  for (const Value& item : sequence.items)
    text += (text.size() > 1 ? ", " : "") + repr(item, depth + 1);
  if (sequence.is_tuple && sequence.items.size() == 1) text += ',';
  return text + (sequence.is_tuple ? ')' : ']');
}

std::string mapping_repr(const Mapping& mapping, int depth) {
  std::string text;
  for (const auto& [key, value] : mapping.items)
    text += (text.empty() ? "" : ", ") + repr(key, depth + 1) + ": " + repr(value, depth + 1);
  text = '{' + text + '}';
  return mapping.is_namespace ? "<Namespace " + text + ">" : text;
}

std::string repr(const Value& value, int depth) {
  require_shallow(depth);
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.is_true() ? "True" : "False";
  if (value.is_integer()) return std::to_string(value.integer());
  if (value.is_float()) return float_text(value.number());
  if (value.is_long_integer()) return value.long_integer().digits;
  if (const Value& list = value.listed(); list.is_sequence())
    return sequence_repr(list.sequence(), depth);
  if (value.is_string()) return repr_of(value.string());
  if (value.is_mapping()) return mapping_repr(value.mapping(), depth);
  return "<function " + value.callable().name + ">";
}

std::string json_string(std::string_view text, bool is_ascii) {
  std::string json = "\"";
  for (const std::string_view character : characters_of(text)) {
    const char32_t c = code_point(character);
    constexpr std::string_view plain = "\"\\\n\r\t\b\f", letters = "\"\\nrtbf";
    const std::size_t at = c < 0x80 ? plain.find(static_cast<char>(c)) : std::string_view::npos;
    if (at != std::string_view::npos) {
      json += {'\\', letters[at]};
    } else if (c < 0x20 || (is_ascii && c >= 0x7F && c < 0x10000)) {
      json +=
          c == 0x7F ? std::string(character) : fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else if (is_ascii && c >= 0x10000) {
      const auto rest = static_cast<unsigned>(c) - 0x10000;
      json += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      json += character;
    }
  }
  return json + '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style)
      : style_(style),
        comma_(style.separators ? style.separators->first
               : style.indent   ? ","
                                : ", "),
        colon_(style.separators ? style.separators->second : ": ") {}

  std::string write(const Value& value, int depth = 0) const {
    require_shallow(depth);
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.is_true() ? "true" : "false";
    if (value.is_integer()) return std::to_string(value.integer());
    if (value.is_float()) return number(value.number());
    if (value.is_long_integer()) return value.long_integer().digits;
    if (const Mapping* mapping = value.mapping_or_null(); mapping && !mapping->is_namespace)
      return object(*mapping, depth);
    if (const Value& list = value.listed(); list.is_sequence()) {
      std::vector<std::string> items;
      for (const Value& item : list.sequence().items)
        items.push_back(write(item, depth + 1));
      return joined('[', items, ']', depth);
    }
    if (value.is_string()) return json_string(value.string(), style_.is_ascii);
    value.require_usable();
    throw Problem(std::string("tojson: JSON has nothing for ") + value.type_name());
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_text(value);
  }

  std::string object(const Mapping& mapping, int depth) const {
    auto items = mapping.items;
    if (style_.sorts_keys)
      std::ranges::stable_sort(
          items, [](const auto& a, const auto& b) { return compare(a.first, b.first) < 0; });
    std::vector<std::string> texts;
    for (const auto& [key, value] : items)
      texts.push_back(json_string(key_text(key), style_.is_ascii) + colon_ +
                      write(value, depth + 1));
    return joined('{', texts, '}', depth);
  }

  std::string key_text(const Value& key) const {
    if (key.is_string()) return key.string();
    if (key.is_none() || key.is_number()) return write(key);
    throw Problem(std::string("tojson: a key of JSON is a string, not ") + key.type_name());
  }

  std::string joined(char open, const std::vector<std::string>& items, char close,
                     int depth) const {
    std::string text(1, open);
    const auto new_line = [&](int level) {
      if (style_.indent)
        text += '\n' + std::string(static_cast<std::size_t>(*style_.indent * level), ' ');
    };
    for (const std::string& item : items) {
      if (text.size() > 1) text += comma_;
      new_line(depth + 1);
      text += item;
    }
    if (!items.empty()) new_line(depth);
    return text + close;
  }

  JsonStyle style_;
  std::string comma_, colon_;
};

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char digits[64];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific);
  const std::string text(digits, end.ptr);
  // Always there, behind a sign that from_chars does not read.
  const std::size_t sign = text.find('e') + 1;
  int exponent = 0;
  std::from_chars(text.data() + sign + 1, text.data() + text.size(), exponent);
  if (text[sign] == '-') exponent = -exponent;
  // Python writes an exponent where the point would be far from the digits.
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed);
  std::string plain(digits, fixed.ptr);
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

std::string to_text(const Value& value) {
  value.require_usable();
  if (value.is_undefined()) return "";
  return value.is_string() ? value.string() : repr(value, 0);
}

Text to_written(const Value& value) {
  if (value.is_string()) return value.text();
  std::string text = to_text(value);  // First: it refuses what is nested too deeply.
  return Text(std::move(text), data_origin(value));
}

std::string to_repr(const Value& value) {
  return repr(value, 0);
}

Origin data_origin(const Value& value) {
  Origin last;
  const auto see = [&](const Value& inner) {
    const Origin origin = data_origin(inner);
    if (!origin.is_data()) return;
    const bool is_another = last.is_data() && origin.element != last.element;
    last = origin;
    if (is_another) last.element = Origin::none;
  };
  if (value.is_string()) return value.text().data_origin();
  if (value.is_sequence())
    for (const Value& item : value.sequence().items)
      see(item);
  if (value.is_mapping())
    for (const auto& [key, item] : value.mapping().items)
      see(item);
  return last;
}

std::string to_json(const Value& value, const JsonStyle& style) {
  return JsonWriter(style).write(value);
}

}  // namespace finetune::jinja
