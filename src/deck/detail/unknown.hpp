#pragma once
// SPDX-License-Identifier: Apache-2.0
// Finds tables and keys of the deck that no row binds.

#include "deck/detail/contents.hpp"

namespace finetune::deck {

/// Adds one problem to `problems` for each unknown table, unknown key, key outside every table and
/// table inside a table, each with what was probably meant.
void find_unknown(const Contents& contents, Problems& problems);

}  // namespace finetune::deck
