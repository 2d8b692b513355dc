// SPDX-License-Identifier: Apache-2.0
#include "deck/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/text.hpp"

namespace finetune::deck {
namespace {

constexpr std::size_t longest_shown_bytes = 60;

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

/// What std::from_chars reads: no underscores, no plus sign.
std::string plain_digits(std::string_view written) {
  std::string digits;
  std::copy_if(written.begin(), written.end(), std::back_inserter(digits),
               [](char c) { return c != '_'; });
  if (digits.starts_with('+')) digits.erase(0, 1);
  return digits;
}

template <typename T, typename... Base>
std::optional<T> from_chars(std::string_view digits, Base... base) {
  T value{};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base...);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string_view describe(ValueKind kind) {
  switch (kind) {
    case ValueKind::text:
      return "a string";
    case ValueKind::integer:
      return "an integer";
    case ValueKind::real:
      return "a real number";
    case ValueKind::boolean:
      return "a boolean";
    case ValueKind::date:
      return "a date or time";
    case ValueKind::array:
      return "an array";
    case ValueKind::table:
      return "a table";
    case ValueKind::table_array:
      return "an array of tables";
  }
  return "a value";
}

std::string shown(const Value& value) {
  if (value.kind == ValueKind::text) {
    const std::string content = clipped(value.text, longest_shown_bytes);
    return to_toml(content);
  }
  const std::string_view first_line =
      std::string_view(value.written).substr(0, value.written.find_first_of("\r\n"));
  std::string text = clipped(first_line, longest_shown_bytes);
  if (first_line.size() < value.written.size() && !text.ends_with("...")) text += " ...";
  return text;
}

std::string shown_name(std::string_view name) {
  const bool bare = !name.empty() && std::all_of(name.begin(), name.end(), is_bare);
  const std::string text = clipped(name, longest_shown_bytes);
  return bare ? text : to_toml(text);
}

std::string name_in_toml(const std::string& name) {
  const bool bare = !name.empty() && std::all_of(name.begin(), name.end(), is_bare);
  return bare ? name : to_toml(name);
}

std::optional<std::int64_t> parse_integer(std::string_view written) {
  const std::string digits = plain_digits(written);
  if (digits.starts_with("0x")) return from_chars<std::int64_t>(digits.substr(2), 16);
  if (digits.starts_with("0o")) return from_chars<std::int64_t>(digits.substr(2), 8);
  if (digits.starts_with("0b")) return from_chars<std::int64_t>(digits.substr(2), 2);
  return from_chars<std::int64_t>(digits, 10);
}

std::optional<double> parse_real(std::string_view written) {
  if (const auto integer = parse_integer(written)) return static_cast<double>(*integer);
  return from_chars<double>(plain_digits(written));
}

std::string to_toml(std::int64_t value) {
  return std::to_string(value);
}

std::string to_toml(double value) {
  std::string text = core::round_trip(value);
  // "1" would read back as an integer.
  if (text.find_first_not_of("+-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string to_toml(bool value) {
  return value ? "true" : "false";
}

std::string to_toml(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

namespace {

template <typename T>
std::string array_of(const std::vector<T>& values) {
  std::string out;
  for (const T& value : values)
    out += (out.empty() ? "" : ", ") + to_toml(value);
  return "[" + out + "]";
}

}  // namespace

std::string to_toml(const std::vector<std::string>& texts) {
  if (texts.size() > 1) return array_of(texts);
  return to_toml(texts.empty() ? std::string() : texts.front());
}

std::string to_toml(const std::vector<double>& numbers) {
  return array_of(numbers);
}

std::string to_toml(const std::map<std::string, std::string>& texts) {
  std::string out;
  for (const auto& [name, text] : texts)
    out += fmt::format("{} {} = {}", out.empty() ? "" : ",", name_in_toml(name), to_toml(text));
  return out.empty() ? "{}" : "{" + out + " }";
}

}  // namespace finetune::deck
