#pragma once
// SPDX-License-Identifier: Apache-2.0
// What is known in the world without a story: opposites, sums, what words name; and lists.

#include <string>
#include <vector>

#include "generator/fact.hpp"

namespace finetune::quickstart {

/// A piece of knowledge: its plain statement and the ways to ask for it.
struct Lesson {
  std::string statement;
  std::vector<std::string> questions;
  Split split = Split::shown;  ///< whether instructions about it are kept for the held-out part
};

/// "The opposite of hot is cold."
const std::vector<Lesson>& opposite_lessons();

/// "Three and four make seven."
const std::vector<Lesson>& sum_lessons();

/// "The word fox names an animal."
const std::vector<Lesson>& naming_lessons();

/// `words` joined by commas.
std::string comma_list(const std::vector<std::string>& words);

/// `count` different words that name things, animals, colours or places.
std::vector<std::string> word_list(Dice& dice, std::size_t count);

}  // namespace finetune::quickstart
