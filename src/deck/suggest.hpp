#pragma once
// SPDX-License-Identifier: Apache-2.0
// Suggestions for names and choices that do not exist.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::deck {

/// The candidate that was probably meant, whatever the case of its letters.
std::optional<std::string> closest(std::string_view name,
                                   const std::vector<std::string>& candidates);

/// "a, b, c", each between `open` and `close`.
std::string list(const std::vector<std::string>& names, std::string_view open = "",
                 std::string_view close = "");

}  // namespace finetune::deck
