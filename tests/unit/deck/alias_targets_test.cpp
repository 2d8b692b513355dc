// SPDX-License-Identifier: Apache-2.0
// Each name of another program leads to a key, a table and a value of this one.
#include "deck/aliases.hpp"
#include "support/folders.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace finetune::deck::alias_targets_test {
namespace {

/// What `finetune --reference` says (style/reference compares it with the file): "table.key" -> its
/// comment.
std::map<std::string, std::string> reference() {
  std::map<std::string, std::string> keys;
  std::ifstream lines(tests::source_folder() / "inputs/reference.toml");
  std::string table, comment;
  for (std::string line; std::getline(lines, line);) {
    const std::string bare = line.starts_with("# ") ? line.substr(2) : line;
    const std::size_t equals = bare.find(" = ");
    const bool is_key = equals != std::string::npos && bare.find_first_not_of(
                                                           "abcdefghijklmnopqrstuvwxyz"
                                                           "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                           "0123456789_") == equals;
    if (line.starts_with('[')) {
      table = line.substr(1, line.find(']') - 1);
    } else if (is_key) {
      keys[table + "." + bare.substr(0, equals)] = std::exchange(comment, "");
    } else if (line.starts_with('#')) {
      comment += " " + bare;
    } else {
      comment.clear();
    }
  }
  return keys;
}

/// The values that a key may have, between quotes; empty if it takes any.
std::string choices_of(const std::string& comment) {
  const std::size_t begin = comment.rfind("one of ");
  return begin == std::string::npos ? "" : comment.substr(begin, comment.find(';', begin) - begin);
}

TEST(Aliases, LeadToKeysOfTheReferenceAndToTheirValues) {
  const auto keys = reference();
  ASSERT_GT(keys.size(), 90u);
  for (const KeyAlias& alias : key_aliases()) {
    if (alias.here.empty()) continue;
    const auto found = keys.find(std::string(alias.table()) + "." + std::string(alias.key()));
    ASSERT_NE(found, keys.end()) << alias.name << " -> " << alias.here;
    const std::string choices = choices_of(found->second);
    if (alias.value().empty() || choices.empty()) continue;
    EXPECT_NE(choices.find(alias.value()), std::string::npos) << alias.name << ": " << choices;
  }
}

TEST(Aliases, AreNoKeysOfOurs) {
  std::set<std::string> own;
  for (const auto& [name, comment] : reference()) {
    own.insert(name);
    own.insert(name.substr(name.find('.') + 1));
  }
  for (const KeyAlias& alias : key_aliases())
    EXPECT_FALSE(own.contains(std::string(alias.name))) << alias.name << " would never be reached";
}

TEST(Aliases, OfTablesAndValuesAreThoseOfTheReference) {
  const auto keys = reference();
  std::set<std::string> tables;
  for (const auto& [name, comment] : keys)
    tables.insert(name.substr(0, name.find('.')));
  for (const TableAlias& alias : table_aliases()) {
    EXPECT_TRUE(tables.contains(std::string(alias.here))) << alias.name;
    EXPECT_FALSE(tables.contains(std::string(alias.name))) << alias.name << " is one of ours";
  }
  for (const ValueAlias& alias : value_aliases()) {
    const auto found = keys.find(std::string(alias.key));
    ASSERT_NE(found, keys.end()) << alias.key;
    const std::string choices = choices_of(found->second);
    const std::string quoted = '"' + std::string(alias.here) + '"';
    const std::string& known = choices.empty() ? found->second : choices;
    EXPECT_NE(known.find(quoted), std::string::npos) << alias.key << " = " << alias.value;
  }
}

}  // namespace
}  // namespace finetune::deck::alias_targets_test
