// SPDX-License-Identifier: Apache-2.0
#include "deck/unknown.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "deck/suggest.hpp"

namespace finetune::deck {
namespace {

constexpr std::size_t most_listed = 12;

class Finder {
 public:
  Finder(const Contents& contents, Problems& problems) : contents_(contents), problems_(problems) {
    for (const BoundTable& table : contents.tables)
      table_names_.push_back(table.name);
  }

  void find() {
    for (const auto& [name, value] : contents_.document.outside)
      outside(name, value);
    for (const auto& [name, section] : contents_.document.sections) {
      if (!is_table(name)) {
        unknown_table(name, section);
        continue;
      }
      const std::vector<std::string> keys = keys_of(name);
      for (const auto& [key, value] : section.values) {
        if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
        if (value.kind == Kind::table || value.kind == Kind::table_array) {
          nested(name, key, value);
        } else {
          unknown_key(name, key, value, keys);
        }
      }
    }
  }

 private:
  bool is_table(const std::string& name) const {
    return std::find(table_names_.begin(), table_names_.end(), name) != table_names_.end();
  }

  std::vector<std::string> keys_of(const std::string& table) const {
    std::vector<std::string> keys;
    for (const Row& row : contents_.rows) {
      if (row.table == table) keys.push_back(row.key);
    }
    return keys;
  }

  /// The tables that have a key of this name.
  std::vector<std::string> owners(const std::string& key) const {
    std::vector<std::string> tables;
    for (const Row& row : contents_.rows) {
      if (row.key == key) tables.push_back(fmt::format("[{}]", row.table));
    }
    return tables;
  }

  static std::string joined_by_or(const std::vector<std::string>& names) {
    return fmt::format("{}", fmt::join(names, " or "));
  }

  /// "Did you mean 'lr' in [optimizer]?", or nothing.
  std::string nearest_anywhere(const std::string& key) const {
    std::vector<std::string> all;
    for (const Row& row : contents_.rows)
      all.push_back(row.key);
    const auto meant = closest(key, all);
    return meant ? fmt::format("Did you mean '{}' in {}?", *meant, joined_by_or(owners(*meant)))
                 : "";
  }

  static std::string list_or_reference(const std::string& introduction,
                                       const std::vector<std::string>& names) {
    if (names.empty() || names.size() > most_listed)
      return "Remove it; `finetune --reference` lists every key.";
    return fmt::format("{} {}.", introduction, list(names));
  }

  void unknown_table(const std::string& name, const Section& section) {
    std::string remedy;
    if (const auto meant = closest(name, table_names_)) {
      remedy = fmt::format("Did you mean [{}]?", *meant);
    } else {
      remedy = list_or_reference("The tables are", table_names_);
    }
    problems_.add({section.place, fmt::format("there is no table [{}]", shown_name(name)),
                   "what is in it would be ignored", remedy});
  }

  void unknown_key(const std::string& table, const std::string& key, const Value& value,
                   const std::vector<std::string>& keys) {
    const std::string name = shown_name(key);
    if (const auto others = owners(key); !others.empty()) {
      problems_.add({value.key_place,
                     fmt::format("key '{}' belongs in {}", name, joined_by_or(others)),
                     fmt::format("[{}] has no such key", table), "Move it there."});
      return;
    }
    std::string remedy;
    if (const auto meant = closest(key, keys)) {
      remedy = fmt::format("Did you mean '{}'?", *meant);
    } else {
      remedy = nearest_anywhere(key);
    }
    if (remedy.empty())
      remedy = list_or_reference(fmt::format("The keys of [{}] are", table), keys);
    problems_.add({value.key_place, fmt::format("[{}] has no key '{}'", table, name),
                   "it would be ignored", remedy});
  }

  void nested(const std::string& table, const std::string& key, const Value& value) {
    const std::string remedy =
        is_table(key)
            ? fmt::format("Write [{}] on a line of its own.", key)
            : fmt::format("Write its keys below a table of the deck, such as [{}].", table);
    problems_.add({value.key_place,
                   fmt::format("[{}] holds {} '{}'", table, describe(value.kind), shown_name(key)),
                   "a deck has tables of keys and nothing deeper", remedy});
  }

  void outside(const std::string& key, const Value& value) {
    const std::string name = shown_name(key);
    if (is_table(key) || value.kind == Kind::table_array) {
      problems_.add({value.key_place,
                     value.kind == Kind::table_array
                         ? fmt::format("{} is an array of tables", name)
                         : fmt::format("{} = {} is {}", name, shown(value), describe(value.kind)),
                     "a table is expected",
                     is_table(key) ? fmt::format("Write [{}] once, and its keys below it.", name)
                                   : "Remove it."});
      return;
    }
    std::string remedy = nearest_anywhere(key);
    if (const auto others = owners(key); !others.empty())
      remedy = fmt::format("Put it below {}.", joined_by_or(others));
    if (remedy.empty()) remedy = "Remove it; `finetune --reference` lists every key.";
    problems_.add({value.key_place, fmt::format("key '{}' stands outside every table", name),
                   "each key belongs to a table", remedy});
  }

  const Contents& contents_;
  Problems& problems_;
  std::vector<std::string> table_names_;
};

}  // namespace

void find_unknown(const Contents& contents, Problems& problems) {
  Finder(contents, problems).find();
}

}  // namespace finetune::deck
