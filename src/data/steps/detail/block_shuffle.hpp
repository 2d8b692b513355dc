#pragma once
// SPDX-License-Identifier: Apache-2.0
// An order that jumps about little: for data that do not fit the memory of a node.

#include <algorithm>
#include <cstdint>

#include "core/random.hpp"

namespace finetune::data {

/// A permutation of 0 .. count - 1 in which blocks of `block` neighbours follow each other at
/// random, and `mixed` of them at a time are shuffled together; what is left behind the last whole
/// block comes last. Takes no memory: it is computed, not drawn.
class BlockShuffle {
 public:
  static constexpr std::int64_t mixed = 16;

  /// count > 0, block > 0. Streams epoch << 32 .. of RandomUse::blocks belong to it.
  BlockShuffle(std::uint64_t seed, std::int64_t epoch, std::int64_t count, std::int64_t block)
      : seed_(seed), epoch_(epoch), count_(count), block_(block), num_blocks_(count / block) {}

  /// What is at place 0 <= i < count.
  std::int64_t operator()(std::int64_t i) const {
    const std::int64_t whole = num_blocks_ * block_;
    if (i >= whole) return whole + core::Permutation(key(1), count_ - whole)(i - whole);
    const std::int64_t group = i / (mixed * block_), first = group * mixed;
    const std::int64_t blocks = std::min(mixed, num_blocks_ - first);
    const std::int64_t within =
        core::Permutation(key(2 + group), blocks * block_)(i - first * block_);
    const std::int64_t chosen = core::Permutation(key(0), num_blocks_)(first + within / block_);
    return chosen * block_ + within % block_;
  }

 private:
  core::RandomKey key(std::int64_t number) const {
    return {seed_, core::RandomUse::blocks,
            static_cast<std::uint64_t>(epoch_) << 32 | static_cast<std::uint64_t>(number)};
  }

  std::uint64_t seed_;
  std::int64_t epoch_, count_, block_, num_blocks_;
};

}  // namespace finetune::data
