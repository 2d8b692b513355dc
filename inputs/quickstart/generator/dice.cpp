// SPDX-License-Identifier: Apache-2.0
#include "generator/dice.hpp"

#include "core/error.hpp"

namespace finetune::quickstart {

Dice::Dice(std::uint64_t stream) : key_(20240229, core::RandomUse::sampling, stream) {}

std::vector<std::string> distinct(Dice& dice, Words words, std::size_t count) {
  core::check(count <= words.size(), "more different words asked for than there are");
  std::vector<std::string> all(words.begin(), words.end());
  dice.shuffle(all);
  all.resize(count);
  return all;
}

}  // namespace finetune::quickstart
