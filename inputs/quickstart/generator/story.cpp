// SPDX-License-Identifier: Apache-2.0
#include "generator/story.hpp"

#include "generator/world.hpp"

namespace finetune::quickstart {

Fact Scene::draw(Relation relation, Split split) {
  while (true) {
    const std::set<std::string> before = used_;
    Fact fact = propose(relation);
    if (split_of(fact) == split) return fact;
    used_ = before;
  }
}

Fact Scene::propose(Relation relation) {
  Fact fact{relation, "", "", ""};
  switch (relation) {
    case Relation::place:
      fact.subject = fresh_object();
      fact.value = fresh(world::places);
      break;
    case Relation::holder:
      fact.subject = fresh(world::names);
      fact.value = fresh_object();
      break;
    case Relation::colour:
      fact.subject = fresh(world::objects);
      fact.value = fresh(world::colours);
      break;
    case Relation::home:
      fact.subject = fresh(world::animals);
      fact.value = fresh(world::places);
      break;
    case Relation::count:
      fact.subject = fresh(world::names);
      fact.value = fresh(world::numbers);
      fact.extra = fresh(world::foods);
      break;
    case Relation::job:
      fact.subject = fresh(world::names);
      fact.value = fresh(world::jobs);
      break;
    case Relation::gift:
      fact.subject = fresh(world::names);
      fact.extra = fresh_object();
      fact.value = fresh(world::names);
      break;
  }
  return fact;
}

std::string Scene::fresh(Words words) {
  while (true) {
    std::string word = dice_.pick(words);
    if (used_.insert(word).second) return word;
  }
}

std::string Scene::fresh_object() {
  std::string object = fresh(world::objects);
  return dice_.chance(40) ? fresh(world::colours) + " " + object : object;
}

std::string filler(Dice& dice) {
  const auto& [one, other] = world::opposites[dice.below(16)];
  const std::string quality(dice.chance(50) ? one : other);
  switch (dice.below(4)) {
    case 0:
      return "It was " + quality + " that day.";
    case 1:
      return "The road was " + quality + ".";
    case 2:
      return "Everybody said that it was " + quality + ".";
    default:
      return "It was not " + quality + " any more.";
  }
}

std::string tell(const std::vector<Fact>& facts, Dice& dice, std::size_t filler_percent) {
  std::string text;
  for (const Fact& fact : facts) {
    if (dice.chance(filler_percent)) text += filler(dice) + " ";
    text += telling(fact, dice) + " ";
  }
  text.pop_back();
  return text;
}

Story story(Dice& dice, std::size_t count) {
  Scene scene(dice);
  std::vector<Relation> kinds(std::begin(relations), std::end(relations));
  dice.shuffle(kinds);
  kinds.resize(2 + dice.below(2));
  Story result;
  for (std::size_t i = 0; i < count; ++i) {
    result.facts.push_back(scene.draw(kinds[i % kinds.size()], Split::shown));
  }
  dice.shuffle(result.facts);
  result.text = tell(result.facts, dice, 12);
  return result;
}

}  // namespace finetune::quickstart
