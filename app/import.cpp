// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "deck/document.hpp"
#include "deck/value.hpp"
#include "migrate/migrate.hpp"
#include "train/input/readable.hpp"

namespace finetune::app {
namespace {

constexpr std::int64_t largest_bytes = std::int64_t{1} << 20;
constexpr int most_parents = 6;

/// "table.key=value" as a key and a value in TOML, which may lack quotes.
std::pair<std::string, std::string> given(const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::size_t dot = word.find('.');
  if (equals == std::string::npos || dot > equals)
    core::fail(core::ErrorKind::command_line,
               {"finetune import", "'" + word + "' is no table.key=value",
                "what follows the file are keys of the deck", "Try finetune import --help."});
  const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
  // What is no value in TOML is a text without its quotes.
  try {
    const bool is_line = value.find_first_of("\r\n") == std::string::npos;
    if (is_line) deck::parse({"finetune import", fmt::format("value = {}\n", value)});
    return {key, is_line ? value : deck::to_toml(value)};
  } catch (const core::Error&) {
    return {key, deck::to_toml(value)};
  }
}

/// A file that a configuration names: from the current folder, or from one that the configuration
/// lies in.
std::optional<std::string> read_named(const std::filesystem::path& configuration,
                                      const std::string& name) {
  std::error_code ignored;
  std::filesystem::path folder = configuration.parent_path();
  if (std::filesystem::is_regular_file(name, ignored))
    return core::read_text(name, largest_bytes, core::ErrorKind::deck);
  for (int i = 0; i < most_parents; ++i) {
    const auto path = folder / name;
    if (std::filesystem::is_regular_file(path, ignored))
      return core::read_text(path, largest_bytes, core::ErrorKind::deck);
    if (!folder.has_relative_path()) break;
    folder = folder.parent_path();
  }
  return std::nullopt;
}

}  // namespace

int run_import(const Arguments& arguments, const train::Registry& registry) {
  migrate::Options options;
  options.from = arguments.from;
  options.ranks = arguments.ranks;
  for (const std::string& word : arguments.overrides)
    options.given.push_back(given(word));
  options.read_named = [&](const std::string& name) { return read_named(arguments.path, name); };
  const std::string text = core::read_text(arguments.path, largest_bytes, core::ErrorKind::deck);
  const std::string deck = migrate::make_deck(text, arguments.path, options);
  train::require_readable(deck, arguments.path + ", as a deck", registry);
  std::fputs(deck.c_str(), stdout);
  return core::exit_done;
}

}  // namespace finetune::app
