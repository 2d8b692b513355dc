#pragma once
// SPDX-License-Identifier: Apache-2.0
// Arguments of the command line, table.key=value, that take the place of the deck's values.

#include <string>
#include <vector>

#include "deck/document.hpp"

namespace finetune::deck {

/// Puts each override into `document`, the last one of a key winning. A value that is not TOML is
/// taken as a string, so that `model.path=a/b` needs no quotes.
/// Throws: ErrorKind::command_line for an argument that is not table.key=value.
void apply_overrides(const std::vector<std::string>& overrides, Document& document);

}  // namespace finetune::deck
