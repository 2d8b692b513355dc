// SPDX-License-Identifier: Apache-2.0
#include "deck/exclusive.hpp"

#include <fmt/format.h>

namespace finetune::deck {

void refuse_both(Table& table, std::string_view key, bool is_set, std::string_view other,
                 bool other_is_set) {
  if (!is_set || !other_is_set) return;
  table.problem(other, fmt::format("both {} and {} are set", key, other),
                "they mean the same thing", "Remove one of them.");
}

}  // namespace finetune::deck
