#pragma once
// SPDX-License-Identifier: Apache-2.0
// A table of a deck as its settings read it.

#include <string>

#include "deck/deck.hpp"

namespace finetune::tests {

/// The settings that bind table `name` (and take `more` for it), from a whole deck that has no
/// other.
/// Throws: ErrorKind::deck with all problems.
template <typename Settings, typename... More>
Settings read_table(const std::string& deck_text, const char* name, const More&... more) {
  deck::Deck deck(deck_text, "input.toml", {});
  deck::Table table = deck.table(name, "A table.");
  Settings settings;
  settings.bind(table, more...);
  deck.finish();
  return settings;
}

}  // namespace finetune::tests
