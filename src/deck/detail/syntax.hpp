#pragma once
// SPDX-License-Identifier: Apache-2.0
// Turns the TOML library's report of a syntax error into a problem in our own grammar.

#include <string>

#include "deck/detail/problems.hpp"

namespace finetune::deck {

/// `report` is the library's message: a sentence, then source lines with a mark under each.
DeckProblem syntax_problem(const std::string& report, const SourceText& source);

}  // namespace finetune::deck
