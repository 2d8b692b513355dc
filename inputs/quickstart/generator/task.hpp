#pragma once
// SPDX-License-Identifier: Apache-2.0
// Instructions with short exact answers, in Alpaca's three fields.

#include <string>
#include <vector>

#include "generator/fact.hpp"

namespace finetune::quickstart {

struct Example {
  std::string instruction;
  std::string input;  ///< may be empty
  std::string output;

  auto operator<=>(const Example&) const = default;
};

/// `count` different examples. Those of Split::held_out tell other stories and lists, and ask for
/// other pieces of knowledge, than those of Split::shown.
std::vector<Example> examples(Split split, std::size_t count);

}  // namespace finetune::quickstart
