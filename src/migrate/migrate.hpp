#pragma once
// SPDX-License-Identifier: Apache-2.0
// Decks from the configurations of other programs: finetune import.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace finetune::migrate {

struct Options {
  std::string from = {};                   ///< one of source_names(); empty: recognised by the keys
  std::optional<std::int64_t> ranks = {};  ///< that a batch per device is multiplied by
  /// "table.key" and value as in TOML: these stand in the deck whatever the file says, and lift
  /// what stops it there.
  std::vector<std::pair<std::string, std::string>> given = {};
  /// The text of a file that the configuration names, or nothing if it is not there.
  std::function<std::optional<std::string>(const std::string& path)> read_named = {};
};

/// Whose configurations are read: "axolotl", "llama-factory", ...
std::vector<std::string> source_names();

/// A deck in TOML, with comments: every key of `text` is in it, or in a comment that says what it
/// would mean here. `where` names the file in messages.
///
/// Throws: ErrorKind::deck for text that is no configuration of a known program, and, with all
/// reasons, where the deck would lack something essential or train something else;
/// ErrorKind::command_line for an unknown name in Options::from.
std::string make_deck(std::string_view text, const std::string& where, const Options& options);

}  // namespace finetune::migrate
