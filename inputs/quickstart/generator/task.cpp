// SPDX-License-Identifier: Apache-2.0
#include "generator/task.hpp"

#include <set>

#include "core/error.hpp"
#include "generator/lesson.hpp"
#include "generator/story.hpp"

namespace finetune::quickstart {
namespace {

/// A question about a story that also tells other facts: always of other relations, and in four of
/// ten stories of the same one, so that not only what is asked for but also of whom must be read.
Example reading(Dice& dice) {
  std::vector<Relation> kinds(std::begin(relations), std::end(relations));
  dice.shuffle(kinds);
  Scene scene(dice);
  const Fact asked = scene.draw(kinds[0], Split::shown);
  std::vector<Fact> facts = {asked, scene.draw(kinds[1], Split::shown),
                             scene.draw(kinds[2], Split::shown)};
  if (dice.chance(40)) facts.push_back(scene.draw(kinds[0], Split::shown));
  dice.shuffle(facts);
  return {question(asked, dice), tell(facts, dice, 12), statement(asked)};
}

Example knowledge(Dice& dice, Split split, const std::vector<Lesson>& lessons) {
  while (true) {
    const Lesson& lesson = dice.pick(lessons);
    if (lesson.split == split) return {dice.pick(lesson.questions), "", lesson.statement};
  }
}

std::vector<std::string> list_of(Dice& dice, Split split) {
  while (true) {
    std::vector<std::string> words = word_list(dice, 3 + dice.below(3));
    if (split_of(comma_list(words), 3) == split) return words;
  }
}

Example ordering(Dice& dice, Split split) {
  using Choices = std::vector<std::string>;
  const std::vector<std::string> words = list_of(dice, split);
  const std::string input = comma_list(words);
  switch (dice.below(3)) {
    case 0:
      return {dice.pick(Choices{"Write the first word of the list.", "Which word comes first?",
                                "What is the first word?"}),
              input, "The first word is " + words.front() + "."};
    case 1:
      return {dice.pick(Choices{"Write the last word of the list.", "Which word comes last?",
                                "What is the last word?"}),
              input, "The last word is " + words.back() + "."};
    default:
      return {dice.pick(Choices{"Write the list backwards.", "Say the words backwards.",
                                "Read the list backwards."}),
              input, "Backwards it is " + comma_list({words.rbegin(), words.rend()}) + "."};
  }
}

Example example(Dice& dice, Split split) {
  const std::size_t kind = dice.below(100);
  if (kind < 76) return reading(dice);
  if (kind < 80) return knowledge(dice, split, opposite_lessons());
  if (kind < 84) return knowledge(dice, split, sum_lessons());
  if (kind < 88) return knowledge(dice, split, naming_lessons());
  return ordering(dice, split);
}

}  // namespace

std::vector<Example> examples(Split split, std::size_t count) {
  const std::uint64_t first_stream = split == Split::shown ? 1'000'000'000 : 2'000'000'000;
  std::vector<Example> all;
  std::set<Example> seen;
  for (std::uint64_t i = 0; all.size() < count; ++i) {
    core::check(i < 20 * count, "there are not as many different examples as asked for");
    Dice dice(first_stream + i);
    Example next = example(dice, split);
    if (seen.insert(next).second) all.push_back(std::move(next));
  }
  return all;
}

}  // namespace finetune::quickstart
