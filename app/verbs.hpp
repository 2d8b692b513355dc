#pragma once
// SPDX-License-Identifier: Apache-2.0
// Words that people write for a command, from habit with other programs.

#include <optional>
#include <string>
#include <string_view>

namespace finetune::app {

/// What to write instead, as a sentence; nothing for a word that no other program has.
std::optional<std::string> advice_for_verb(std::string_view word);

/// The command of ours that `word` is a misspelling of.
std::optional<std::string> nearest_command(std::string_view word);

/// For an option behind the deck, "--learning_rate=1e-5" or "--optimizer.lr": the key that is
/// meant.
std::string advice_for_option(std::string_view option);

}  // namespace finetune::app
