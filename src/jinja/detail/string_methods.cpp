// SPDX-License-Identifier: Apache-2.0
// Methods of Python's str. Upper and lower case are those of ASCII.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "jinja/detail/characters.hpp"
#include "jinja/detail/formats.hpp"
#include "jinja/detail/letters.hpp"
#include "jinja/detail/library.hpp"
#include "jinja/detail/lines.hpp"

namespace finetune::jinja::detail {
namespace {

/// What a method of `text` is called with.
struct Asked {
  const Text& whole;
  const std::string& text;  ///< its bytes
  const Arguments& arguments;
  const std::string& name;
  Budget& budget;

  const Text& written(std::size_t place, const char* key) const {
    const Value* value = arguments.find(place, key);
    if (value == nullptr) throw Problem(fmt::format("str.{} asks for a string", name));
    require_defined(*value);
    if (!value->is_string())
      throw Problem(fmt::format("str.{} asks for a string, not {}", name, value->type_name()));
    return value->text();
  }
  const std::string& string(std::size_t place, const char* key) const {
    return written(place, key).bytes();
  }
  std::int64_t integer(std::size_t place, const char* key, std::int64_t fallback) const {
    return integer_of(arguments.get(place, key, fallback), "str." + name);
  }
};

Value strip(const Asked& asked, Ends ends) {
  const Value chars = asked.arguments.get(0, "chars", Value());
  const std::string_view text = asked.text;
  return asked.whole.part(chars.is_none() ? stripped(text, ends)
                                          : stripped(text, ends, asked.string(0, "chars")));
}

bool is_space_alone(std::string_view character) {
  return is_space(code_point(character));
}

/// At white space, at most `most` times: what is left then keeps the white space behind it.
std::vector<Value> split_at_space(const Text& whole, std::int64_t most) {
  std::vector<Value> parts;
  std::string_view text = stripped(whole.bytes(), Ends::left);
  for (; !text.empty() && most != 0; --most) {
    std::string_view rest = text;
    while (!rest.empty() && !is_space_alone(first_character(rest)))
      rest.remove_prefix(first_character(rest).size());
    parts.emplace_back(whole.part(text.substr(0, text.size() - rest.size())));
    text = stripped(rest, Ends::left);
  }
  if (!text.empty()) parts.emplace_back(whole.part(text));
  return parts;
}

/// The same from its end, where what is left keeps the white space in front of it.
std::vector<Value> split_at_space_from_right(const Text& whole, std::int64_t most) {
  std::vector<Value> parts;
  std::string_view text = stripped(whole.bytes(), Ends::right);
  for (; !text.empty() && most != 0; --most) {
    std::string_view rest = text;
    while (!rest.empty() && !is_space_alone(last_character(rest)))
      rest.remove_suffix(last_character(rest).size());
    parts.emplace_back(whole.part(text.substr(rest.size())));
    text = stripped(rest, Ends::right);
  }
  if (!text.empty()) parts.emplace_back(whole.part(text));
  std::ranges::reverse(parts);
  return parts;
}

std::vector<Value> split_at(const Text& whole, const std::string& separator, std::int64_t most) {
  std::vector<Value> parts;
  std::string_view text = whole.bytes();
  for (std::size_t at; most != 0 && (at = text.find(separator)) != std::string_view::npos; --most) {
    parts.emplace_back(whole.part(text.substr(0, at)));
    text.remove_prefix(at + separator.size());
  }
  parts.emplace_back(whole.part(text));
  return parts;
}

std::vector<Value> split_from_right(const Text& whole, const std::string& separator,
                                    std::int64_t most) {
  std::vector<Value> parts;
  std::string_view text = whole.bytes();
  for (std::size_t at; most != 0 && (at = text.rfind(separator)) != std::string_view::npos;
       --most) {
    parts.emplace_back(whole.part(text.substr(at + separator.size())));
    text = text.substr(0, at);
  }
  parts.emplace_back(whole.part(text));
  std::ranges::reverse(parts);
  return parts;
}

Value split(const Asked& asked) {
  const std::int64_t most = asked.integer(1, "maxsplit", -1);
  const bool is_from_right = asked.name == "rsplit";
  if (asked.arguments.get(0, "sep", Value()).is_none())
    return is_from_right ? split_at_space_from_right(asked.whole, most)
                         : split_at_space(asked.whole, most);
  const std::string separator = asked.string(0, "sep");
  if (separator.empty()) throw Problem("str.split at an empty string");
  return is_from_right ? split_from_right(asked.whole, separator, most)
                       : split_at(asked.whole, separator, most);
}

Value split_lines(const Asked& asked) {
  const bool keeps_ends = asked.arguments.get(0, "keepends", false).is_true();
  std::vector<Value> lines;
  for (const auto& [text, end] : lines_of(asked.text))
    lines.emplace_back(
        asked.whole.part({text.data(), text.size() + (keeps_ends ? end.size() : 0)}));
  return lines;
}

/// The part of a text from its second to its third argument, which may be left out, in characters.
struct Searched {
  std::string_view text;
  std::int64_t begin = 0;
};

/// Nothing if there is no such part, not even an empty one.
std::optional<Searched> searched(const Asked& asked) {
  if (asked.arguments.positional.size() < 2) return Searched{asked.text};
  const auto characters = characters_of(asked.text);
  const std::int64_t size = std::ssize(characters);
  const auto bound = [&](std::size_t i, std::int64_t fallback) {
    if (asked.arguments.get(i, "", Value()).is_none()) return fallback;
    const std::int64_t place = asked.integer(i, "", fallback);
    return place < 0 ? std::max<std::int64_t>(0, place + size) : place;
  };
  const std::int64_t begin = bound(1, 0), end = std::min(bound(2, size), size);
  if (begin > end) return std::nullopt;
  const auto bytes_before = [&](std::int64_t i) {
    return i == size ? asked.text.size()
                     : static_cast<std::size_t>(characters[static_cast<std::size_t>(i)].data() -
                                                asked.text.data());
  };
  const std::size_t first = bytes_before(begin);
  return Searched{std::string_view(asked.text).substr(first, bytes_before(end) - first), begin};
}

/// Of one string, or of one among several.
bool has_end(const Asked& asked, bool (*has)(std::string_view, std::string_view)) {
  asked.arguments.require("str." + asked.name, 3);
  const Value wanted = asked.arguments.get(0, "prefix", Value::Undefined{"what it asks for"});
  const auto part = searched(asked);
  if (!wanted.is_sequence()) {
    const std::string& one = asked.string(0, "prefix");
    return part && has(part->text, one);
  }
  return std::ranges::any_of(wanted.sequence().items, [&](const Value& one) {
    return one.is_string() && part && has(part->text, one.string());
  });
}

Value join(const Asked& asked) {
  const Value parts = asked.arguments.get(0, "iterable", Value::Undefined{"str.join's list"});
  require_defined(parts);
  Text text;
  bool is_first = true;
  for (const Value& part : elements_of(parts)) {
    if (!part.is_string())
      throw Problem(std::string("str.join asks for strings, not ") + part.type_name());
    if (!is_first) text += asked.whole;
    text += part.text();
    is_first = false;
  }
  return text;
}

/// In characters; -1 where it is not.
std::int64_t find(const Asked& asked, bool is_from_right) {
  const std::string& wanted = asked.string(0, "sub");
  const auto part = searched(asked);
  if (!part) return -1;
  const std::size_t at = is_from_right ? part->text.rfind(wanted) : part->text.find(wanted);
  if (at == std::string_view::npos) return -1;
  return part->begin + num_characters(part->text.substr(0, at));
}

Value index(const Asked& asked, bool is_from_right) {
  const std::int64_t at = find(asked, is_from_right);
  if (at < 0) throw Problem("str.index: the substring is not there");
  return at;
}

Value count(const Asked& asked) {
  const std::string& wanted = asked.string(0, "sub");
  const auto part = searched(asked);
  if (!part) return 0;
  if (wanted.empty()) return num_characters(part->text) + 1;
  std::int64_t number = 0;
  for (std::size_t at = part->text.find(wanted); at != std::string_view::npos;
       at = part->text.find(wanted, at + wanted.size()))
    ++number;
  return number;
}

Value partition(const Asked& asked, bool is_from_right) {
  const Text& whole = asked.whole;
  const std::string separator = asked.string(0, "sep");
  const std::size_t at = is_from_right ? asked.text.rfind(separator) : asked.text.find(separator);
  if (at == std::string::npos)
    return is_from_right ? Value::tuple({"", "", whole}) : Value::tuple({whole, "", ""});
  const std::size_t end = at + separator.size();
  return Value::tuple(
      {whole.part(0, at), whole.part(at, separator.size()), whole.part(end, whole.size() - end)});
}

Value padded(const Asked& asked) {
  const std::int64_t width = asked.integer(0, "width", 0) - num_characters(asked.text);
  if (width > 1'000'000) throw Problem("str." + asked.name + " of more than a million characters");
  if (width <= 0) return asked.whole;
  if (asked.name == "zfill") {
    const bool is_signed = asked.text.starts_with('-') || asked.text.starts_with('+');
    const std::size_t sign = is_signed ? 1 : 0;
    Text filled = asked.whole.part(0, sign);
    filled.append(std::string(static_cast<std::size_t>(width), '0'));
    return filled += asked.whole.part(sign, asked.text.size() - sign);
  }
  const std::string fill =
      asked.arguments.positional.size() > 1 ? asked.string(1, "fillchar") : " ";
  Text left;
  std::string right;
  for (std::int64_t i = 0; i < width; ++i) {
    const bool is_left = asked.name == "rjust" ||
                         (asked.name == "center" &&
                          i < width / 2 + (width & (width + num_characters(asked.text)) & 1));
    if (is_left)
      left.append(fill);
    else
      right += fill;
  }
  left += asked.whole;
  left.append(right);
  return left;
}

Value format_map(const Asked& asked) {
  const Value values = asked.arguments.get(0, "mapping", Value::Undefined{"format_map's dict"});
  require_defined(values);
  const Mapping* mapping = values.mapping_or_null();
  if (mapping == nullptr)
    throw Problem(std::string("str.format_map asks for a dict, not ") + values.type_name());
  Arguments named;
  for (const auto& [key, value] : mapping->items)
    if (key.is_string()) named.named.emplace_back(key.string(), value);
  return filled(asked.whole, named, asked.budget);
}

using Function = Value (*)(const Asked&);

const std::unordered_map<std::string, Function>& functions() {
  static const std::unordered_map<std::string, Function> all = {
      {"strip", [](const Asked& a) { return strip(a, Ends::both); }},
      {"lstrip", [](const Asked& a) { return strip(a, Ends::left); }},
      {"rstrip", [](const Asked& a) { return strip(a, Ends::right); }},
      {"split", split},
      {"rsplit", split},
      {"splitlines", split_lines},
      {"startswith",
       [](const Asked& a) -> Value {
         return has_end(a, [](std::string_view t, std::string_view e) { return t.starts_with(e); });
       }},
      {"endswith",
       [](const Asked& a) -> Value {
         return has_end(a, [](std::string_view t, std::string_view e) { return t.ends_with(e); });
       }},
      {"upper", [](const Asked& a) -> Value { return a.whole.with_bytes(upper(a.text)); }},
      {"lower", [](const Asked& a) -> Value { return a.whole.with_bytes(lower(a.text)); }},
      {"casefold", [](const Asked& a) -> Value { return a.whole.with_bytes(lower(a.text)); }},
      {"capitalize",
       [](const Asked& a) -> Value { return a.whole.with_bytes(capitalised(a.text)); }},
      {"title", [](const Asked& a) -> Value { return a.whole.with_bytes(titled(a.text)); }},
      {"replace",
       [](const Asked& a) -> Value {
         return replaced(a.whole, a.string(0, "old"), a.written(1, "new"),
                         a.integer(2, "count", -1));
       }},
      {"join", join},
      {"find", [](const Asked& a) -> Value { return find(a, false); }},
      {"rfind", [](const Asked& a) -> Value { return find(a, true); }},
      {"index", [](const Asked& a) { return index(a, false); }},
      {"rindex", [](const Asked& a) { return index(a, true); }},
      {"count", count},
      {"partition", [](const Asked& a) { return partition(a, false); }},
      {"rpartition", [](const Asked& a) { return partition(a, true); }},
      {"removeprefix",
       [](const Asked& a) -> Value {
         std::string_view text = a.text;
         if (text.starts_with(a.string(0, "prefix")))
           text.remove_prefix(a.string(0, "prefix").size());
         return a.whole.part(text);
       }},
      {"removesuffix",
       [](const Asked& a) -> Value {
         std::string_view text = a.text;
         if (text.ends_with(a.string(0, "suffix")))
           text.remove_suffix(a.string(0, "suffix").size());
         return a.whole.part(text);
       }},
      {"zfill", padded},
      {"center", padded},
      {"ljust", padded},
      {"rjust", padded},
      {"format", [](const Asked& a) -> Value { return filled(a.whole, a.arguments, a.budget); }},
      {"format_map", format_map},
      {"isdigit", [](const Asked& a) -> Value { return is_all(a.text, is_digit); }},
      {"isdecimal", [](const Asked& a) -> Value { return is_all(a.text, is_digit); }},
      {"isnumeric", [](const Asked& a) -> Value { return is_all(a.text, is_digit); }},
      {"isalpha", [](const Asked& a) -> Value { return is_all(a.text, is_letter); }},
      {"isalnum",
       [](const Asked& a) -> Value {
         return is_all(a.text, [](char32_t c) { return is_letter(c) || is_digit(c); });
       }},
      {"isspace", [](const Asked& a) -> Value { return is_all(a.text, is_space); }},
      {"isupper",
       [](const Asked& a) -> Value { return upper(a.text) == a.text && lower(a.text) != a.text; }},
      {"islower",
       [](const Asked& a) -> Value { return lower(a.text) == a.text && upper(a.text) != a.text; }},
  };
  return all;
}

}  // namespace

std::optional<Value> method_of_string(const Value& text, const std::string& name, Budget& budget) {
  const auto found = functions().find(name);
  if (found == functions().end()) return std::nullopt;
  const Function function = found->second;
  return Callable{name, [text, name, function, &budget](const Arguments& arguments) -> Value {
                    budget.spend_bytes(static_cast<std::int64_t>(text.string().size()));
                    Value made = function({text.text(), text.string(), arguments, name, budget});
                    if (made.is_string())
                      budget.spend_bytes(static_cast<std::int64_t>(made.string().size()));
                    return made;
                  }};
}

}  // namespace finetune::jinja::detail
