// SPDX-License-Identifier: Apache-2.0
#include "generator/corpus.hpp"

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
  facts.resize(1 + dice.below(facts.size()));
  const std::string separator = dice.chance(50) ? "\n" : " ";
  std::string text = dice.pick(openings);
  for (const Fact& fact : facts)
    text += statement(fact) + separator;
  text.pop_back();
  return text;
}

std::string story_document(Dice& dice) {
  const Story told = story(dice, 3 + dice.below(4));
  return (dice.chance(30) ? title(dice) : "") + told.text + "\n\n" + summary(told.facts, dice);
}

/// A story, and two people who talk about it.
std::string talk_document(Dice& dice) {
  const Story told = story(dice, 3 + dice.below(3));
  const std::vector<std::string> speakers = distinct(dice, world::names, 2);
  std::vector<Fact> facts = told.facts;
  dice.shuffle(facts);
  const bool quoted = dice.chance(50);
  std::string text = told.text + "\n\n";
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string asked = question(facts[i], dice);
    const std::string answer = statement(facts[i]);
    text += quoted ? "\"" + asked + "\" said " + speakers[0] + ".\n\"" + answer + "\" said " +
                         speakers[1] + ".\n"
                   : speakers[0] + ": " + asked + "\n" + speakers[1] + ": " + answer + "\n";
  }
  text.pop_back();
  return text;
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

/// Somebody writes and somebody reads: the same words twice.
std::string echo_document(Dice& dice) {
  const std::vector<std::string> people = distinct(dice, world::names, 2);
  const std::string words =
      dice.chance(50) ? story(dice, 2).text : comma_list(word_list(dice, 3 + dice.below(6)));
  return people[0] + " wrote: " + words + "\n" + people[1] + " read: " + words;
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
  Dice dice(i);
  const std::size_t kind = dice.below(100);
  if (kind < 42) return story_document(dice);
  if (kind < 66) return talk_document(dice);
  if (kind < 71) return chain_document(dice);
  if (kind < 77) return echo_document(dice);
  if (kind < 84) return list_document(dice);
  if (kind < 95) return lesson_document(dice);
  return note_document(dice);
}

}  // namespace finetune::quickstart
