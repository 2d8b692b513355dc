#pragma once
// SPDX-License-Identifier: Apache-2.0
// A parsed deck: tables of values, each with its place. The TOML library shows only in its .cpp.

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "deck/detail/source.hpp"
#include "deck/value.hpp"

namespace finetune::deck {

struct Section {
  TextPlace place;
  std::map<std::string, Value> values;
};

struct Document {
  std::map<std::string, Section> sections;
  std::map<std::string, Value> outside;  ///< keys that stand in no table, and arrays of tables

  /// The value of a key, or nullptr.
  const Value* find(const std::string& section, const std::string& key) const;
};

/// Throws: ErrorKind::deck with the first syntax error, or for bytes that `precheck` refuses.
Document parse(const SourceText& source);

/// Reads `written` as one TOML value; nothing if it is not exactly that. Its places are empty.
/// `written` has passed `precheck`.
std::optional<Value> parse_value(const std::string& written);

}  // namespace finetune::deck
