#pragma once
// SPDX-License-Identifier: Apache-2.0
// Refuses bytes that the TOML library cannot be trusted with, before it sees them.

#include <optional>
#include <string_view>

#include "deck/detail/problems.hpp"

namespace finetune::deck {

/// The first reason not to parse `text`, if there is one. Allowed: at most 1 MiB, lines of at most
/// 2 KiB, valid UTF-8, no control characters but tab and line ends, brackets nested at most 64 deep
/// and at most 1,024 opening brackets.
std::optional<DeckProblem> precheck(std::string_view text);

}  // namespace finetune::deck
