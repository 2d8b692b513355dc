#pragma once
// SPDX-License-Identifier: Apache-2.0
// A value as it stands in the deck, and values turned into numbers and into TOML.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deck/detail/source.hpp"

namespace finetune::deck {

enum class ValueKind { text, integer, real, boolean, date, array, table, table_array };

/// Numbers stay text until their type is known, so that none is rounded or cut on the way.
struct Value {
  ValueKind kind = ValueKind::text;
  std::string text;     ///< content of a string; for other kinds the same as `written`
  std::string written;  ///< as in the deck, with quotes; empty for strings over several lines
  TextPlace key_place;
  TextPlace place;
  std::vector<Value> elements;                              ///< of an array
  std::vector<std::pair<std::string, Value>> entries = {};  ///< of a table, in order of their names
};

/// "a string", "an integer" ...
std::string_view describe(ValueKind kind);

/// The value as a message shows it: one line, not too long.
std::string shown(const Value& value);

/// A key or table name as a message shows it: quoted where TOML wants quotes.
std::string shown_name(std::string_view name);

/// The same as TOML has it, however long.
std::string name_in_toml(const std::string& name);

/// A TOML integer (decimal, 0x, 0o, 0b, with underscores); nothing if it does not fit 64 bits.
std::optional<std::int64_t> parse_integer(std::string_view written);

/// A TOML integer or real; nothing if it is not a number or too large for a double.
std::optional<double> parse_real(std::string_view written);

std::string to_toml(std::int64_t value);
std::string to_toml(double value);
std::string to_toml(bool value);
std::string to_toml(std::string_view text);
inline std::string to_toml(const std::string& text) {
  return to_toml(std::string_view(text));
}
/// One text as itself, none as "", several as an array.
std::string to_toml(const std::vector<std::string>& texts);
std::string to_toml(const std::vector<double>& numbers);
/// { name = "text", ... } on one line.
std::string to_toml(const std::map<std::string, std::string>& texts);

}  // namespace finetune::deck
