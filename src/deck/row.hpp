#pragma once
// SPDX-License-Identifier: Apache-2.0
// What is known about one key of the deck: parsing, errors and the reference all follow from it.

#include <optional>
#include <string>
#include <string_view>

namespace finetune::deck {

/// Whether a run may continue from a checkpoint with another value of the key.
enum class Restart { fixed, free };

/// What the owner of a key says about it. `sentence` is printed by the reference and ends with a
/// full stop; `unit` may be empty. A required key has no default.
struct Key {
  std::string_view name;
  Restart restart;
  std::string_view sentence;
  std::string_view unit = "";
  bool required = false;
};

/// Allowed values: `min` and `max` are inside, `above` and `below` are outside. All are optional.
template <typename T>
struct Range {
  std::optional<T> min = {};
  std::optional<T> max = {};
  std::optional<T> above = {};
  std::optional<T> below = {};
  bool zero_is_auto = false;  ///< 0 is written "auto": others find the value
};

enum class Type { integer, real, boolean, text, choice, texts, reals, named_texts, values };

/// A key that was bound, with its value after reading the deck. Values are written as in TOML.
struct Row {
  std::string table;
  std::string key;
  Restart restart = Restart::free;
  std::string sentence;
  std::string unit;
  bool required = false;
  bool may_be_auto = false;  ///< besides a number: "auto"
  Type type = Type::text;
  std::string allowed;  ///< "from 0 to 1", "one of ..."; empty where every value of the type is
  std::string default_value;
  std::string value;
};

}  // namespace finetune::deck
