// SPDX-License-Identifier: Apache-2.0
#include "core/random.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "core/error.hpp"

namespace finetune::core {
namespace {

/// The seed and the stream are mixed into one 64-bit key (finaliser of SplitMix64, Steele et al.
/// 2014), because Philox4x32 has 64 key bits and the counter is taken by use and index.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

std::array<std::uint32_t, 4> block(std::uint64_t seed, RandomUse use, std::uint64_t stream,
                                   std::uint64_t index) {
  const std::uint64_t key = mix(seed + 0x9E3779B97F4A7C15u * (stream + 1));
  return philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                 static_cast<std::uint32_t>(use), static_cast<std::uint32_t>(stream)},
                {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
}

std::uint64_t join(std::uint32_t low, std::uint32_t high) {
  return low | (static_cast<std::uint64_t>(high) << 32);
}

}  // namespace

std::uint64_t RandomKey::bits(std::uint64_t index) const {
  const auto words = block(seed_, use_, stream_, index);
  return join(words[0], words[1]);
}

std::uint64_t RandomKey::below(std::uint64_t index, std::uint64_t bound) const {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits(index)) * bound) >> 64);
}

double RandomKey::normal(std::uint64_t index) const {
  const auto words = block(seed_, use_, stream_, index);
  // 1 - u lies in (0, 1], so the logarithm is finite.
  const double u = 1.0 - static_cast<double>(join(words[0], words[1]) >> 11) * 0x1p-53;
  const double v = static_cast<double>(join(words[2], words[3]) >> 11) * 0x1p-53;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

Permutation::Permutation(const RandomKey& key, std::int64_t count)
    : key_(key), count_(static_cast<std::uint64_t>(count)) {
  check(count > 0, "a permutation has elements");
  // At least one bit on either side; less than half of the domain lies outside the range.
  const int bits = std::max(2, static_cast<int>(std::bit_width(count_ - 1)));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

std::int64_t Permutation::operator()(std::int64_t i) const {
  // Four rounds look random to whoever does not know the key (Luby and Rackoff 1988); small domains
  // need some more to be even.
  constexpr std::uint64_t rounds = 8;
  auto x = static_cast<std::uint64_t>(i);
  do {
    std::uint64_t low = x & ((std::uint64_t{1} << low_bits_) - 1);
    std::uint64_t high = x >> low_bits_;
    for (std::uint64_t round = 0; round < rounds; round += 2) {
      low ^= key_.bits(round << 32 | high) >> (64 - low_bits_);
      high ^= key_.bits((round + 1) << 32 | low) >> (64 - high_bits_);
    }
    x = high << low_bits_ | low;
  } while (x >= count_);
  return static_cast<std::int64_t>(x);
}

}  // namespace finetune::core
