#pragma once
// SPDX-License-Identifier: Apache-2.0
// Keys of one table of which a deck sets one at most.

#include <string_view>

#include "deck/table.hpp"

namespace finetune::deck {

/// Notes that both keys are set, of which one says in other words what the other does.
void refuse_both(Table& table, std::string_view key, bool is_set, std::string_view other,
                 bool other_is_set);

}  // namespace finetune::deck
