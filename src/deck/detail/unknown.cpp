// SPDX-License-Identifier: Apache-2.0
#include "deck/detail/unknown.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "deck/detail/alias_advice.hpp"
#include "deck/suggest.hpp"

namespace finetune::deck {
namespace {

constexpr std::size_t most_listed = 12;
constexpr std::string_view look_it_up = "Find its name in `finetune --reference`, or remove it.";

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
        if (value.kind == ValueKind::table || value.kind == ValueKind::table_array) {
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
    if (names.empty() || names.size() > most_listed) return std::string(look_it_up);
    return fmt::format("{} {}.", introduction, list(names));
  }

  void unknown_table(const std::string& name, const Section& section) {
    std::string remedy;
    if (const auto meant = closest(name, table_names_)) {
      remedy = fmt::format("Did you mean [{}]?", *meant);
    } else {
      const auto alias = find_table_alias(name);
      remedy = alias && is_table(*alias) ? fmt::format("Here it is [{}].", *alias)
                                         : list_or_reference("The tables are", table_names_);
      remedy += translated_keys(section, contents_, alias.value_or(""));
    }
    problems_.add({section.place, fmt::format("there is no table [{}]", shown_name(name)),
                   "what is in it would be ignored", remedy});
  }

  void unknown_key(const std::string& table, const std::string& key, const Value& value,
                   const std::vector<std::string>& keys) {
    const std::string name = shown_name(key);
    const std::string problem = fmt::format("[{}] has no key '{}'", table, name);
    const auto add_alias = [&](const KeyAlias* alias) {
      if (alias == nullptr || !is_usable(*alias, contents_)) return false;
      const Advice advice = advice_for(*alias, contents_, table, value);
      problems_.add({value.key_place, problem, advice.why, advice.remedy});
      return true;
    };
    if (add_alias(find_alias_in(table, key))) return;
    if (const auto others = owners(key); !others.empty()) {
      problems_.add({value.key_place,
                     fmt::format("key '{}' belongs in {}", name, joined_by_or(others)),
                     fmt::format("[{}] has no such key", table), "Move it there."});
      return;
    }
    if (add_alias(find_alias(key))) return;
    std::string remedy;
    if (const auto meant = closest(key, keys)) {
      remedy = fmt::format("Did you mean '{}'?", *meant);
    } else {
      remedy = nearest_anywhere(key);
    }
    if (remedy.empty())
      remedy = list_or_reference(fmt::format("The keys of [{}] are", table), keys);
    problems_.add({value.key_place, problem, "it would be ignored", remedy});
  }

  void nested(const std::string& table, const std::string& key, const Value& value) {
    const std::string meant = find_table_alias(key).value_or(key);
    const std::string remedy =
        is_table(meant)
            ? fmt::format("Write [{}] on a line of its own.", meant)
            : fmt::format("Write its keys below a table of the deck, such as [{}].", table);
    problems_.add({value.key_place,
                   fmt::format("[{}] holds {} '{}'", table, describe(value.kind), shown_name(key)),
                   "a deck has tables of keys and nothing deeper", remedy});
  }

  void outside(const std::string& key, const Value& value) {
    const std::string name = shown_name(key);
    const std::string problem = fmt::format("key '{}' stands outside every table", name);
    const KeyAlias* alias = find_alias(key);
    const bool is_known = alias != nullptr && is_usable(*alias, contents_);
    if (is_known && owners(key).empty() && value.kind != ValueKind::table_array) {
      const Advice advice = advice_for(*alias, contents_, "", value);
      problems_.add({value.key_place, problem, advice.why, advice.remedy});
      return;
    }
    if (is_table(key) || value.kind == ValueKind::table_array) {
      const std::string meant = find_table_alias(key).value_or(key);
      problems_.add({value.key_place,
                     value.kind == ValueKind::table_array
                         ? fmt::format("{} is an array of tables", name)
                         : fmt::format("{} = {} is {}", name, shown(value), describe(value.kind)),
                     "a table is expected",
                     is_table(meant) ? fmt::format("Write [{}] once, and its keys below it.", meant)
                                     : std::string(look_it_up)});
      return;
    }
    std::string remedy = nearest_anywhere(key);
    if (const auto others = owners(key); !others.empty())
      remedy = fmt::format("Put it below {}.", joined_by_or(others));
    if (remedy.empty()) remedy = look_it_up;
    problems_.add({value.key_place, problem, "each key belongs to a table", remedy});
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
