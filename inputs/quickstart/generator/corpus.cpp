// SPDX-License-Identifier: Apache-2.0
#include "generator/corpus.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "generator/lesson.hpp"
#include "generator/story.hpp"
#include "generator/world.hpp"

namespace finetune::quickstart {
namespace {

std::string title(Dice& dice) {
  const std::string name = dice.pick(world::names);
  const std::string place = capitalised(dice.pick(world::places));
  const std::string job = capitalised(dice.pick(world::jobs));
  switch (dice.below(7)) {
    case 0:
      return "### The " + place + ":\n";
    case 1:
      return "### " + name + " and the " + job + ":\n";
    case 2:
      return "### A Day in the " + place + ":\n";
    case 3:
      return "### The Instruction of the " + job + ":\n";
    case 4:
      return "### The Response of " + name + ":\n";
    case 5:
      return "### Input from the " + place + ":\n";
    default:
      return "### What " + name + " knows:\n";
  }
}

/// The facts once more, plainly, after some words that say so.
std::string summary(std::vector<Fact> facts, Dice& dice) {
  static const std::vector<std::string> openings = {"So this is what we know:\n", "Now remember:\n",
                                                    "This is true:\n", "In short:\n", ""};
  dice.shuffle(facts);
  facts.resize(facts.size() - dice.below(facts.size() / 2 + 1));
  const std::string separator = dice.chance(50) ? "\n" : " ";
  std::string text = dice.pick(openings);
  for (const Fact& fact : facts)
    text += statement(fact) + separator;
  text.pop_back();
  return text;
}

std::string story_document(Dice& dice) {
  const Story told = story(dice, 3 + dice.below(4));
  // One statement a draw: the order of operands is the compiler's choice.
  std::string text = dice.chance(30) ? title(dice) : "";
  text += told.text + "\n\n";
  return text + summary(told.facts, dice);
}

/// A story, and two people who talk about it.
std::string talk_document(Dice& dice) {
  const Story told = story(dice, 3 + dice.below(3));
  const std::vector<std::string> speakers = distinct(dice, world::names, 2);
  std::vector<Fact> facts = told.facts;
  dice.shuffle(facts);
  const bool quoted = dice.chance(50);
  std::string text = told.text + "\n\n";
  const std::size_t num_questions = 2 + dice.below(facts.size() - 1);
  for (std::size_t i = 0; i < num_questions; ++i) {
    const std::string asked = question(facts[i], dice);
    const std::string answer = statement(facts[i]);
    text += quoted ? "\"" + asked + "\" said " + speakers[0] + ".\n\"" + answer + "\" said " +
                         speakers[1] + ".\n"
                   : speakers[0] + ": " + asked + "\n" + speakers[1] + ": " + answer + "\n";
  }
  text.pop_back();
  return text;
}

/// Everything about one person.
std::string portrait_document(Dice& dice) {
  const std::string name = dice.pick(world::names);
  const std::string friend_name = dice.pick(world::names);
  const std::vector<std::string> things = distinct(dice, world::objects, 2);
  std::vector<Fact> facts = {
      {Relation::job, name, dice.pick(world::jobs), ""},
      {Relation::holder, name, things[0], ""},
      {Relation::count, name, dice.pick(world::numbers), dice.pick(world::foods)}};
  if (friend_name != name) facts.push_back({Relation::gift, name, friend_name, things[1]});
  std::erase_if(facts, [](const Fact& fact) { return split_of(fact) != Split::shown; });
  if (facts.size() < 2) return story_document(dice);
  dice.shuffle(facts);
  const std::string told = tell(facts, dice, 20);
  return told + "\n\n" + summary(facts, dice);
}

/// What is in one place, first as a list and then in sentences.
std::string inventory_document(Dice& dice) {
  const std::string place = dice.pick(world::places);
  std::string list = "### The " + capitalised(place) + ":\n";
  std::string sentences;
  for (const std::string& thing : distinct(dice, world::objects, 2 + dice.below(4))) {
    const Fact fact{Relation::place, thing, place, ""};
    if (split_of(fact) != Split::shown) continue;
    list.append("the ").append(thing).append("\n");
    sentences.append("\n").append(statement(fact));
  }
  return list + sentences;
}

std::string counting_document(Dice& dice) {
  std::vector<std::string> words(world::numbers.begin(), world::numbers.end());
  const std::size_t first = dice.below(6);
  words = {words.begin() + first, words.begin() + first + 3 + dice.below(words.size() - first - 3)};
  if (dice.chance(50)) std::reverse(words.begin(), words.end());
  const std::string name = dice.pick(world::names);
  return name + " counts the " + dice.pick(world::foods) + ": " + comma_list(words) + ".";
}

/// A thing that goes from hand to hand.
std::string chain_document(Dice& dice) {
  const std::vector<std::string> people = distinct(dice, world::names, 4);
  const std::string thing = dice.pick(world::objects);
  const std::size_t hands = 2 + dice.below(3);
  std::string text = people[0] + " had the " + thing + ".";
  for (std::size_t i = 1; i < hands; ++i) {
    const Fact gift{Relation::gift, people[i - 1], people[i], thing};
    if (split_of(gift) == Split::shown) text.append(" ").append(telling(gift, dice));
  }
  const Fact end{Relation::holder, people[hands - 1], thing, ""};
  if (split_of(end) == Split::shown) text.append("\n\n").append(statement(end));
  return text;
}

/// Somebody writes and somebody reads: the same words twice. Nothing teaches copying as fast.
std::string echo_document(Dice& dice) {
  static const std::vector<std::pair<std::string, std::string>> verbs = {
      {" wrote: ", " read: "}, {" said: ", " said: "}, {": ", ": "}};
  const std::vector<std::string> people = distinct(dice, world::names, 2);
  const auto& [first, second] = dice.pick(verbs);
  const std::string words = dice.chance(50) ? story(dice, 2 + dice.below(4)).text
                                            : comma_list(word_list(dice, 4 + dice.below(12)));
  return people[0] + first + words + "\n" + people[1] + second + words;
}

std::string list_document(Dice& dice) {
  const std::vector<std::string> words = word_list(dice, 3 + dice.below(3));
  const std::vector<std::string> backwards(words.rbegin(), words.rend());
  std::vector<std::string> parts = {
      "The first word is " + words.front() + ".", "The last word is " + words.back() + ".",
      "The second word is " + words[1] + ".", "Backwards it is " + comma_list(backwards) + "."};
  dice.shuffle(parts);
  parts.resize(1 + dice.below(parts.size()));
  std::string text = (dice.chance(50) ? "A list of words: " : "") + comma_list(words) + "\n\n";
  for (const std::string& part : parts)
    text += part + (dice.chance(50) ? " " : "\n");
  text.pop_back();
  return text;
}

std::string lesson_document(Dice& dice) {
  const std::vector<Lesson>* const all[] = {&opposite_lessons(), &sum_lessons(), &naming_lessons()};
  const std::vector<Lesson>& lessons = *all[dice.below(3)];
  const std::string name = dice.pick(world::names);
  std::string text = dice.chance(30) ? title(dice) : "";
  const std::size_t count = 3 + dice.below(5);
  for (std::size_t i = 0; i < count; ++i) {
    const Lesson& lesson = dice.pick(lessons);
    if (dice.chance(25)) text += name + ": " + dice.pick(lesson.questions) + "\n";
    text += lesson.statement + "\n";
  }
  text.pop_back();
  return text;
}

/// Letters about work at school: where the words of instructions are met as plain words.
std::string note_document(Dice& dice) {
  static const std::vector<std::string> sentences = {
      "The teacher wrote an instruction that describes a task.",
      "Below the window is a table, paired with a chair.",
      "The letter provides further news of the harbour.",
      "Write to me soon and tell me about the context of the story.",
      "A good response completes the request.",
      "The work was appropriately done.",
      "This input is a list that provides the names.",
      "The map describes the context of the road.",
      "Below is a short letter.",
      "An instruction is paired with a response.",
      "Further down the road is a request that nobody completes.",
      "Write a word that describes the day.",
      "The task is long, and it needs further input.",
      "The doctor wrote appropriately short sentences.",
      "Everybody made a request, and the teacher wrote a response."};
  std::vector<std::string> chosen = sentences;
  dice.shuffle(chosen);
  std::string text = dice.chance(30) ? title(dice) : "";
  chosen.resize(3 + dice.below(4));
  for (const std::string& sentence : chosen)
    text += sentence + " ";
  text.pop_back();
  return text + "\n\n" + dice.pick(world::names);
}

}  // namespace

std::string document(std::uint64_t i) {
  using Kind = std::string (*)(Dice&);
  static constexpr std::pair<std::size_t, Kind> kinds[] = {
      {26, story_document},   {32, talk_document}, {5, portrait_document}, {3, chain_document},
      {14, echo_document},    {5, list_document},  {8, lesson_document},   {3, inventory_document},
      {1, counting_document}, {3, note_document}};  // percent of the documents
  Dice dice(i);
  std::size_t rest = dice.below(100);
  for (const auto& [percent, kind] : kinds) {
    if (rest < percent) return kind(dice);
    rest -= percent;
  }
  core::fail(core::ErrorKind::bug, {"document", "the shares do not add up to 100", "", ""});
}

}  // namespace finetune::quickstart
