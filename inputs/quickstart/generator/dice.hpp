#pragma once
// SPDX-License-Identifier: Apache-2.0
// Random choices in a fixed order: the same dice give the same choices on every machine.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.hpp"

namespace finetune::quickstart {

using Words = std::span<const std::string_view>;

class Dice {
 public:
  /// `stream` is the number of the document or example, so that each one is reproducible alone.
  explicit Dice(std::uint64_t stream);

  /// Uniform in [0, bound).
  std::size_t below(std::size_t bound) { return key_.below(next_++, bound); }

  bool chance(std::size_t percent) { return below(100) < percent; }

  std::string pick(Words words) { return std::string(words[below(words.size())]); }

  template <typename T>
  const T& pick(const std::vector<T>& items) {
    return items[below(items.size())];
  }

  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[below(i)]);
    }
  }

 private:
  core::RandomKey key_;
  std::uint64_t next_ = 0;
};

/// `count` different words of `words`, in random order; count <= words.size().
std::vector<std::string> distinct(Dice& dice, Words words, std::size_t count);

}  // namespace finetune::quickstart
