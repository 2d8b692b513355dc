// SPDX-License-Identifier: Apache-2.0
#include "generator/lesson.hpp"

#include "generator/world.hpp"

namespace finetune::quickstart {
namespace {

constexpr std::array<std::string_view, 21> number_words = {
    "zero",     "one",     "two",     "three",     "four",     "five",     "six",
    "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",   "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"};

Lesson opposite(const std::string& one, const std::string& other) {
  return {"The opposite of " + one + " is " + other + ".",
          {"Write the opposite of " + one + ".", "What is the opposite of " + one + "?",
           "Which word means the opposite of " + one + "?", "Find the opposite of " + one + "."},
          // Both directions of a pair share a split: cold would give hot away.
          split_of("opposite " + std::min(one, other), 3)};
}

Lesson sum(std::size_t a, std::size_t b) {
  const std::string one(number_words[a]);
  const std::string other(number_words[b]);
  const std::string both = one + " and " + other;
  return {capitalised(both) + " make " + std::string(number_words[a + b]) + ".",
          {"Add " + both + ".", "How much do " + both + " make?",
           "What is the sum of " + both + "?", "Write the sum of " + both + "."},
          split_of("sum " + std::string(number_words[std::min(a, b)]) + " " +
                       std::string(number_words[std::max(a, b)]),
                   3)};
}

void add_namings(std::vector<Lesson>& lessons, Words words, const std::string& kind) {
  for (const std::string_view view : words) {
    const std::string word(view);
    lessons.push_back(
        {"The word " + word + " names " + kind + ".",
         {"What does the word " + word + " name?", "Tell me what the word " + word + " names.",
          "Say what the word " + word + " names."},
         split_of("naming " + word, 3)});
  }
}

}  // namespace

const std::vector<Lesson>& opposite_lessons() {
  static const std::vector<Lesson> lessons = [] {
    std::vector<Lesson> all;
    for (const auto& [one, other] : world::opposites) {
      all.push_back(opposite(std::string(one), std::string(other)));
      all.push_back(opposite(std::string(other), std::string(one)));
    }
    return all;
  }();
  return lessons;
}

const std::vector<Lesson>& sum_lessons() {
  static const std::vector<Lesson> lessons = [] {
    std::vector<Lesson> all;
    for (std::size_t a = 1; a <= 10; ++a) {
      for (std::size_t b = 1; b <= 10; ++b)
        all.push_back(sum(a, b));
    }
    return all;
  }();
  return lessons;
}

const std::vector<Lesson>& naming_lessons() {
  static const std::vector<Lesson> lessons = [] {
    std::vector<Lesson> all;
    add_namings(all, world::names, "a person");
    add_namings(all, world::objects, "a thing");
    add_namings(all, world::animals, "an animal");
    add_namings(all, world::places, "a place");
    add_namings(all, world::foods, "a food");
    add_namings(all, world::jobs, "a job");
    return all;
  }();
  return lessons;
}

std::string comma_list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::vector<std::string> word_list(Dice& dice, std::size_t count) {
  static const std::vector<std::string_view> words = [] {
    std::vector<std::string_view> all;
    for (const Words kind : {Words(world::objects), Words(world::animals), Words(world::places),
                             Words(world::colours)}) {
      all.insert(all.end(), kind.begin(), kind.end());
    }
    return all;
  }();
  return distinct(dice, words, count);
}

}  // namespace finetune::quickstart
