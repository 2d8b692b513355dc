#pragma once
// SPDX-License-Identifier: Apache-2.0
// Files in other languages that are taken for a deck.

#include <optional>
#include <string_view>

#include "deck/detail/problems.hpp"

namespace finetune::deck {

/// What `text` is, if its first line that says something is YAML, JSON or that of a script, and so
/// can be no TOML.
std::optional<DeckProblem> foreign_language(std::string_view text);

}  // namespace finetune::deck
