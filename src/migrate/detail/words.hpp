#pragma once
// SPDX-License-Identifier: Apache-2.0
// What others call the values of our keys.

#include <span>
#include <string>
#include <string_view>

namespace finetune::migrate {

struct Word {
  std::string_view key;    ///< ours
  std::string_view value;  ///< theirs, in lower case
  std::string_view here;   ///< ours; empty: there is none
  std::string_view note = "";
};

/// The one for `value`, whose case does not matter, or null.
const Word* find_word(std::string_view key, std::string_view value);

/// Of ASCII letters.
std::string lower_case(std::string_view text);

}  // namespace finetune::migrate
