#pragma once
// SPDX-License-Identifier: Apache-2.0
// What to say of a key that other programs know by this name.

#include <string>

#include "deck/aliases.hpp"
#include "deck/detail/contents.hpp"

namespace finetune::deck {

/// Why a key is not one of ours, and what to write instead.
struct Advice {
  std::string why, remedy;
};

/// Whether the deck has our key: a machine's file, for one, has other tables.
bool is_usable(const KeyAlias& alias, const Contents& contents);

/// For `value` of that name below [`table`] (empty: outside every table). `alias` is usable.
Advice advice_for(const KeyAlias& alias, const Contents& contents, const std::string& table,
                  const Value& value);

/// " Of its keys, r is adapter.lora_r, lr is optimizer.lr." of an unknown table; empty where none
/// of its keys is known.
std::string translated_keys(const Section& section, const Contents& contents,
                            std::string_view likely = "");

}  // namespace finetune::deck
