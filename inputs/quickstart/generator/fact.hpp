#pragma once
// SPDX-License-Identifier: Apache-2.0
// What can be true in the world, and the ways to say it and to ask for it.

#include <string>
#include <string_view>
#include <vector>

#include "generator/dice.hpp"

namespace finetune::quickstart {

enum class Relation { place, holder, colour, home, count, job, gift };

inline constexpr Relation relations[] = {Relation::place, Relation::holder, Relation::colour,
                                         Relation::home,  Relation::count,  Relation::job,
                                         Relation::gift};

struct Fact {
  Relation relation = Relation::place;
  std::string subject;  ///< "red ball", "Mara"
  std::string value;    ///< "kitchen", "three"
  std::string extra;    ///< what is counted or given; empty elsewhere
};

/// The one sentence that states the fact plainly; also the answer to every question about it.
std::string statement(const Fact& fact);

/// One of the ways in which a story tells the fact.
std::string telling(const Fact& fact, Dice& dice);

/// One of the questions or commands whose answer is `statement(fact)`. It names one side of the
/// fact only, so the other has to be found.
std::string question(const Fact& fact, Dice& dice);

/// Which facts may be used: one in eight is never told anywhere but in the held-out examples.
enum class Split { shown, held_out };

/// The split of the item called `name`: a function of the name alone.
Split split_of(std::string_view name, int held_out_sixteenths);
Split split_of(const Fact& fact);

/// `text` with its first letter in upper case.
std::string capitalised(std::string text);

}  // namespace finetune::quickstart
