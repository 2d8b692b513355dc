#pragma once
// SPDX-License-Identifier: Apache-2.0
// Decks that are read for their keys alone.

#include <string>

#include "train/input/registry.hpp"

namespace finetune::train {

/// Whether the keys of a deck are in order, whatever model it names; `name` begins messages.
/// Throws: ErrorKind::deck.
void require_readable(const std::string& text, const std::string& name, const Registry& registry);

}  // namespace finetune::train
