#pragma once
// SPDX-License-Identifier: Apache-2.0
// Sets of processor cores, as Linux writes them and as this process may use them.

#include <string_view>
#include <vector>

namespace finetune::core {

/// "0-3,8" -> 0, 1, 2, 3, 8: how Linux writes sets of cores and nodes. What is no number is left
/// out.
std::vector<int> parse_list(std::string_view text);

/// The cores that this process may run on, in ascending order; none if the system does not say.
std::vector<int> own_cores();

}  // namespace finetune::core
