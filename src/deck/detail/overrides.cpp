// SPDX-License-Identifier: Apache-2.0
#include "deck/detail/overrides.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "core/text.hpp"
#include "deck/aliases.hpp"
#include "deck/detail/precheck.hpp"

namespace finetune::deck {
namespace {

constexpr std::string_view remedy =
    "Write table.key=value, for example model.path=some/folder or optimizer.lr=1e-5.";

/// Of an argument without a table.
std::string remedy_for(std::string_view name, std::string_view rest) {
  const KeyAlias* alias = find_alias(name);
  if (alias == nullptr || alias->here.empty()) return std::string(remedy);
  const bool is_name_alone = alias->value().empty() && alias->note.empty();
  return fmt::format("Write {}.{}={}.", alias->table(), alias->key(), is_name_alone ? rest : "..");
}

[[noreturn]] void refuse(const std::string& where, const std::string& problem,
                         const std::string& why) {
  core::fail(core::ErrorKind::command_line, {where, problem, why, std::string(remedy)});
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

Value read_value(const std::string& written) {
  if (auto value = parse_value(written)) {
    value->written = written;
    return *std::move(value);
  }
  Value text;
  text.text = written;
  text.written = written;
  return text;
}

}  // namespace

void apply_overrides(const std::vector<std::string>& overrides, Document& document) {
  for (const std::string& argument : overrides) {
    // Such an argument is not repeated: it may hold bytes that cannot be printed.
    if (const auto problem = precheck(argument))
      refuse("command line", problem->problem, problem->why);
    const std::string where = SourceText().where(TextPlace::in_argument(argument));
    const std::size_t equals = argument.find('=');
    if (equals == std::string::npos)
      refuse(where, "there is no '=' in it", "an override gives a key its value");
    const std::string name = core::trimmed(std::string_view(argument).substr(0, equals));
    const std::size_t dot = name.find('.');
    if (dot == std::string::npos) {
      core::fail(core::ErrorKind::command_line,
                 {where, "there is no '.' before '='", "every key belongs to a table",
                  remedy_for(name, std::string_view(argument).substr(equals + 1))});
    }
    const std::string table = name.substr(0, dot);
    const std::string key = name.substr(dot + 1);
    if (!is_name(table) || !is_name(key))
      refuse(where, "this is not the name of a key",
             "it has the form table.key, of letters, digits, _ and -");
    Value value = read_value(core::trimmed(std::string_view(argument).substr(equals + 1)));
    value.place.argument = argument;
    value.key_place.argument = argument;
    Section& section = document.sections.try_emplace(table, Section{value.place, {}}).first->second;
    section.values.insert_or_assign(key, std::move(value));
  }
}

}  // namespace finetune::deck
