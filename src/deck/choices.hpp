#pragma once
// SPDX-License-Identifier: Apache-2.0
// The values that a key may have, and what each stands for: for Table::choice, and for messages.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace finetune::deck {

/// Meanings are values of an enum, or of an optional one.
template <typename Meaning>
using Choices = std::vector<std::pair<std::string, Meaning>>;

/// How a deck writes `value`.
template <typename Meaning>
std::string name_in(const Choices<Meaning>& choices, Meaning value) {
  const auto found = std::ranges::find(choices, value, &std::pair<std::string, Meaning>::second);
  core::check(found != choices.end(), "every value of a choice has a name");
  return found->first;
}

/// What a deck means by `name`, which is one of the choices.
template <typename Meaning>
Meaning value_in(const Choices<Meaning>& choices, const std::string& name) {
  const auto found = std::ranges::find(choices, name, &std::pair<std::string, Meaning>::first);
  core::check(found != choices.end(), "a name is one of its key's choices");
  return found->second;
}

}  // namespace finetune::deck
