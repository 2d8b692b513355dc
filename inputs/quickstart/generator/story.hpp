#pragma once
// SPDX-License-Identifier: Apache-2.0
// Little stories: facts that fit together, told in a row.

#include <set>
#include <string>
#include <vector>

#include "generator/fact.hpp"

namespace finetune::quickstart {

/// Draws facts that do not contradict each other: no word is used twice in a scene.
class Scene {
 public:
  explicit Scene(Dice& dice) : dice_(dice) {}

  Fact draw(Relation relation, Split split);

 private:
  Fact propose(Relation relation);
  std::string fresh(Words words);
  std::string fresh_object();

  Dice& dice_;
  std::set<std::string> used_;
};

struct Story {
  std::vector<Fact> facts;
  std::string text;  ///< the sentences that tell the facts, on one line
};

/// `facts` told in their order, with sentences of no importance between.
std::string tell(const std::vector<Fact>& facts, Dice& dice, std::size_t filler_percent);

/// A story of `count` facts of two or three relations, so that a question has near misses.
Story story(Dice& dice, std::size_t count);

/// A sentence that says nothing about any fact.
std::string filler(Dice& dice);

}  // namespace finetune::quickstart
