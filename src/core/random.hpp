#pragma once
// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: a value depends on (seed, stream, index) alone, never on a rank,
// an order of calls or a saved generator state.

#include <array>
#include <cstdint>

namespace finetune::core {

/// What the numbers are for; part of the key, so that two uses never share a sequence.
enum class RandomUse : std::uint32_t {
  weights = 1,
  shuffle = 2,
  dropout = 3,
  sampling = 4,
  passes = 5,    ///< over a data set whose epoch is not a whole number of passes
  rounding = 6,  ///< of weights and moments that are kept in bfloat16
  noise = 7,     ///< on embeddings
  blocks = 8,    ///< of neighbours, in which a large data set is shuffled
  test = 99
};

/// Philox4x32 with 10 rounds. Source: Salmon et al. 2011, "Parallel random numbers: as easy as
/// 1, 2, 3" (SC11).
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// One sequence of random numbers, addressed by index. `stream` distinguishes sequences of one use:
/// an epoch, a parameter, a layer.
class RandomKey {
 public:
  RandomKey(std::uint64_t seed, RandomUse use, std::uint64_t stream = 0)
      : seed_(seed), use_(use), stream_(stream) {}

  /// 64 random bits.
  std::uint64_t bits(std::uint64_t index) const;

  /// Uniform in [0, 1) with 53 bits.
  double uniform(std::uint64_t index) const {
    return static_cast<double>(bits(index) >> 11) * 0x1p-53;
  }

  /// Uniform in [0, bound), without bias that matters (64-bit multiply-shift); bound > 0.
  std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;

  /// Standard normal (Box-Muller on two uniforms of one Philox block).
  double normal(std::uint64_t index) const;

 private:
  std::uint64_t seed_;
  RandomUse use_;
  std::uint64_t stream_;
};

/// A permutation of 0 .. count - 1 that takes no memory, the same on every machine: a Feistel
/// network over the next power of two, walked until it meets the range again (format-preserving
/// encryption; Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
class Permutation {
 public:
  /// count > 0.
  Permutation(const RandomKey& key, std::int64_t count);

  /// Where 0 <= i < count goes.
  std::int64_t operator()(std::int64_t i) const;

 private:
  RandomKey key_;
  std::uint64_t count_;
  int low_bits_;
  int high_bits_;
};

}  // namespace finetune::core
