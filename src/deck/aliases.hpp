#pragma once
// SPDX-License-Identifier: Apache-2.0
// What other programs call the keys, tables and values of a deck: for messages alone, nothing of it
// is accepted.

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace finetune::deck {

/// `name` is a key ("learning_rate"), or one that only means this in a certain table
/// ("model.name"). `here` is our key, with a value where only one is meant (`precision.mode =
/// "16-mixed"`), or empty where there is none. `note` says how the thing is done here; without one
/// it is a matter of the name.
struct KeyAlias {
  std::string_view name, here, note = "";

  std::string_view table() const { return here.substr(0, here.find('.')); }
  /// The name of our key within its table.
  std::string_view key() const;
  /// As in TOML; empty where any value may be meant.
  std::string_view value() const;
};

/// `name` is a table's, or that of a table in a table; `here` is one of ours.
struct TableAlias {
  std::string_view name, here;
};

/// What others write for a value of our key.
struct ValueAlias {
  std::string_view key, value, here;
};

std::span<const KeyAlias> key_aliases();
std::span<const TableAlias> table_aliases();
std::span<const ValueAlias> value_aliases();

/// A name as the tables above write it: lower case, _ for -.
std::string plain_name(std::string_view name);

/// The one that only means something in `table`.
const KeyAlias* find_alias_in(std::string_view table, std::string_view name);
/// The one that means the same everywhere.
const KeyAlias* find_alias(std::string_view name);
/// Our table.
std::optional<std::string> find_table_alias(std::string_view name);
/// Our value for `value` (a string without quotes, or a number or boolean) of table.key; case, -, _
/// and blanks do not matter.
std::optional<std::string> find_value_alias(std::string_view key, std::string_view value);

}  // namespace finetune::deck
