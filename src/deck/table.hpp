#pragma once
// SPDX-License-Identifier: Apache-2.0
// One table of the deck, to which the members of a settings struct are bound.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/ordered_json.hpp"
#include "deck/choices.hpp"
#include "deck/row.hpp"

namespace finetune::deck {

struct Contents;
struct Value;

/// A handle: cheap to copy, valid as long as its Deck lives (also after the Deck was moved).
///
/// Each function binds one key: what the member holds is the default, and if the deck (or an
/// override) has the key and its value is fit, the member gets it. Otherwise the problem is
/// noted for Deck::finish and the member keeps its default.
/// All throw ErrorKind::bug if a key is bound twice or its default is outside its own range.
class Table {
 public:
  void integer(const Key& key, std::int64_t& value, Range<std::int64_t> range = {});
  /// Integers are accepted too; what is not finite never is.
  void real(const Key& key, double& value, Range<double> range = {});
  void boolean(const Key& key, bool& value);
  /// An override needs no quotes, even where it looks like a number.
  void text(const Key& key, std::string& value);
  /// A string that is one of `choices`.
  void choice(const Key& key, std::string& value, const std::vector<std::string>& choices);
  /// The same, bound to what the string stands for: of an enum, or of an optional one, for which
  /// one of the strings leaves it open.
  template <typename Meaning>
  requires(!std::is_same_v<Meaning, std::string>) void choice(const Key& key, Meaning& value,
                                                              const Choices<Meaning>& choices) {
    std::string name = name_in(choices, value);
    std::vector<std::string> names;
    for (const auto& [each, meaning] : choices)
      names.push_back(each);
    choice(key, name, names);
    value = value_in(choices, name);
  }
  /// A string or an array of strings, each one of `choices` if there are any. "" is no string. An
  /// override may leave out quotes: [a,b].
  void texts(const Key& key, std::vector<std::string>& values,
             const std::vector<std::string>& choices = {});
  /// An array of numbers, each within `range`.
  void reals(const Key& key, std::vector<double>& values, Range<double> range = {});
  /// A table of strings, { name = "text" }, whose names are some of `names`. No text is empty.
  void named_texts(const Key& key, std::map<std::string, std::string>& values,
                   const std::vector<std::string>& names);
  /// A table of any values but dates, { name = true, other = [1, 2.5] }, as a JSON object whose
  /// names are sorted; null is a table without any. Whole numbers have 64 bits, others are finite.
  void values(const Key& key, core::OrderedJson& values);

  /// All other keys of the table that the deck has and `accepts` says yes to: for tables whose keys
  /// others define. Strings, integers and booleans, which become "1" and "0". To be called
  /// after the table's own keys are bound; the reference does not list such keys.
  void others(Restart restart, const std::function<bool(const std::string& key)>& accepts,
              std::map<std::string, std::string>& values);

  /// Notes a contradiction found later. It points at the key's value in the deck or at its
  /// override; without either at the table, or else at the file. "key.name" is an entry of a table
  /// of texts.
  void problem(std::string_view key, const std::string& problem, const std::string& why,
               const std::string& remedy);

 private:
  friend class Deck;
  Table(Contents& contents, std::string_view name) : contents_(&contents), name_(name) {}

  Row row(const Key& key, Type type) const;
  void require_default(const Row& row, bool is_allowed) const;
  bool is_bound(const std::string& key) const;
  const Value* given(const Row& row);
  std::optional<std::vector<Value>> text_elements(const Row& row, const Value& value);
  bool is_fit(const Row& row, const Value& value, const std::vector<std::string>& choices);
  std::optional<core::OrderedJson> any_value(const Row& row, const Value& value);
  void zero_character(const Row& row, const Value& value);
  void wrong_type(const Row& row, const Value& value);
  void out_of_range(const Row& row, const Value& value);
  void not_a_choice(const Row& row, const Value& value, const std::vector<std::string>& choices);

  Contents* contents_;
  std::string name_;
};

}  // namespace finetune::deck
