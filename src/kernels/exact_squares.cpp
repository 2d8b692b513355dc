// SPDX-License-Identifier: Apache-2.0
#include "kernels/exact_squares.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"
#include "kernels/detail/scratch.hpp"

namespace finetune::kernels {
namespace {

__extension__ using Wide = __int128;

// A square (exact in fp64) is cut into a multiple of 2^32, one of 2^-12, one of 2^-56 and one of
// 2^-100. Each bin takes at most 45 bits of it, so that fp64 adds 256 of them without rounding.
constexpr int num_bins = SquareBins::num_bins, bin_bits = 44, num_sums = 16;
constexpr std::int64_t block = 4096;
constexpr std::int64_t grain_blocks = grain_elements / block;
constexpr auto limit = static_cast<float>(SquareBins::limit);
static_assert(block / num_sums == 256);

KOKKOS_FORCEINLINE_FUNCTION constexpr double unit_of(int bin) {
  constexpr double units[num_bins] = {0x1p32, 0x1p-12, 0x1p-56, 0x1p-100};
  return units[bin];
}

struct BlockSums {
  std::int64_t bins[num_bins];  // in units of the bin
  bool in_range;
};

// The bins from `top` on: in the bins above, no square of the block has a share.
template <int top>
KOKKOS_INLINE_FUNCTION void add_squares(const float* values, std::int64_t count,
                                        std::int64_t* bins) {
  double sums[num_bins][num_sums] = {};
  const auto add = [&](std::int64_t i, int lane) {
    const double value = values[i];
    double rest = value * value;
    for (int bin = top; bin < num_bins; ++bin) {
      // Adding 1.5 * 2^52 units rounds to whole units.
      const double shift = 0x1.8p52 * unit_of(bin);
      const double part = (rest + shift) - shift;
      sums[bin][lane] += part;
      rest -= part;
    }
  };
  std::int64_t i = 0;
  for (; i + num_sums <= count; i += num_sums) {
    for (int lane = 0; lane < num_sums; ++lane)
      add(i + lane, lane);
  }
  for (int lane = 0; i < count; ++i, ++lane)
    add(i, lane);
  for (int bin = top; bin < num_bins; ++bin) {
    for (int lane = 0; lane < num_sums; ++lane)
      bins[bin] += static_cast<std::int64_t>(sums[bin][lane] / unit_of(bin));
  }
}

struct SquareBlocks {
  const float* values;
  BlockSums* blocks;
  std::int64_t count;

  KOKKOS_INLINE_FUNCTION void sum_block(const float* begin, std::int64_t size,
                                        BlockSums& out) const {
    out = BlockSums{{0, 0, 0, 0}, true};
    std::uint32_t largest = 0;  // magnitudes are ordered like their bits, infinity and NaN last
    for (std::int64_t i = 0; i < size; ++i) {
      const std::uint32_t magnitude = bits_of(begin[i]) & 0x7FFFFFFFu;
      largest = magnitude > largest ? magnitude : largest;
    }
    out.in_range = largest < bits_of(limit);
    if (!out.in_range) return;
    // A square up to half a unit rounds to none of it.
    const double magnitude = float_of(largest), square = magnitude * magnitude;
    if (square <= 0.5 * unit_of(1)) return add_squares<2>(begin, size, out.bins);
    if (square <= 0.5 * unit_of(0)) return add_squares<1>(begin, size, out.bins);
    add_squares<0>(begin, size, out.bins);
  }

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t index = first; index < last; ++index) {
      const std::int64_t begin = index * block, left = count - begin;
      sum_block(values + begin, left < block ? left : block, blocks[index]);
    }
  }
};

/// A team adds up so many. Of each bin that is 59 bits: more than one fp64 holds, so that a thread
/// adds integers.
constexpr std::int64_t team_elements = 16384;

/// Each element is read once. Bins are added up as integers, which have no order.
struct SquaresOfTeam {
  const float* values;
  std::int64_t* bins;  // SquareBins::num_values
  std::int64_t count;

  struct Own {
    std::int64_t bins[num_bins];
    std::int64_t num_bad;
  };

  /// What is left of a square behind the part that `bin` has of it.
  template <int bin>
  static KOKKOS_FORCEINLINE_FUNCTION double put(double rest, Own& own) {
    // Adding 1.5 * 2^52 units leaves whole units in the low bits of the mantissa.
    constexpr double shift = 0x1.8p52 * unit_of(bin);
    const double shifted = rest + shift;
    own.bins[bin] += bits_of(shifted) - bits_of(shift);
    return rest - (shifted - shift);
  }

  static KOKKOS_FORCEINLINE_FUNCTION void add(float value, Own& own) {
    if (!(std::fabs(value) < limit)) {
      ++own.num_bad;
      return;
    }
    double rest = static_cast<double>(value) * static_cast<double>(value);
    // A square up to half a unit rounds to none of it.
    if (rest > 0.5 * unit_of(1)) {
      if (rest > 0.5 * unit_of(0)) rest = put<0>(rest, own);
      rest = put<1>(rest, own);
    }
    rest = put<2>(rest, own);
    put<3>(rest, own);
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * team_elements, left = count - begin;
    Own own{};
    team.for_each(left < team_elements ? left : team_elements,
                  [&](std::int64_t i) { add(values[begin + i], own); });
    for (int bin = 0; bin < num_bins; ++bin) {
      const std::int64_t sum = team.sum_of_threads(own.bins[bin]);
      if (!team.is_first() || sum == 0) continue;
      constexpr std::int64_t low_bits = (std::int64_t{1} << SquareBins::split_bits) - 1;
      add_for_all(bins + bin, sum >> SquareBins::split_bits);
      add_for_all(bins + num_bins + bin, sum & low_bits);
    }
    const std::int64_t num_bad = team.sum_of_threads(own.num_bad);
    if (team.is_first() && num_bad != 0) add_for_all(bins + 2 * num_bins, num_bad);
  }
};

// Limbs of any size and sign, to limbs of 40 bits.
template <class Limb>
void carry(const Limb (&from)[6], std::array<std::int64_t, 6>& to) {
  constexpr Limb mask = (Limb{1} << ExactSquares::limb_bits) - 1;
  Limb over = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const Limb limb = from[i] + over;
    to[i] = static_cast<std::int64_t>(limb & mask);
    over = limb >> ExactSquares::limb_bits;  // towards minus infinity
  }
}

void set_limbs(const Wide (&bins)[num_bins], ExactSquares& result) {
  Wide limbs[6] = {};
  for (int bin = 0; bin < num_bins; ++bin) {
    const int bit = (num_bins - 1 - bin) * bin_bits;
    limbs[bit / ExactSquares::limb_bits] += bins[bin] * (Wide{1} << bit % ExactSquares::limb_bits);
  }
  carry(limbs, result.limbs);
}

}  // namespace

SquareBins SquareBins::from(std::span<const std::int64_t, num_values> values) {
  SquareBins bins;
  std::copy_n(values.begin(), num_bins, bins.high.begin());
  std::copy_n(values.begin() + num_bins, num_bins, bins.low.begin());
  bins.num_bad = values.back();
  return bins;
}

ExactSquares sum_of(const SquareBins& bins) {
  Wide sums[num_bins] = {};
  for (std::size_t i = 0; i < bins.high.size(); ++i)
    sums[i] = bins.high[i] * (Wide{1} << SquareBins::split_bits) + bins.low[i];
  ExactSquares result;
  result.in_range = bins.num_bad == 0;
  set_limbs(sums, result);
  return result;
}

void ExactSquares::add(const ExactSquares& other) {
  for (std::size_t i = 0; i < limbs.size(); ++i)
    limbs[i] += other.limbs[i];
  in_range = in_range && other.in_range;
  normalize();
}

void ExactSquares::normalize() {
  std::int64_t from[6];
  std::copy(limbs.begin(), limbs.end(), from);
  carry(from, limbs);
}

double ExactSquares::value() const {
  double sum = 0.0;
  for (std::size_t i = 0; i < limbs.size(); ++i)
    sum += std::ldexp(static_cast<double>(limbs[i]), static_cast<int>(i) * limb_bits - unit_bits);
  return sum;
}

void add_exact_squares(std::span<const float> values, SquareBins::Values bins, const Place& place) {
  const auto count = static_cast<std::int64_t>(values.size());
  if (place.is_gpu()) {
    const std::int64_t teams = (count + team_elements - 1) / team_elements;
    return Teams<SquaresOfTeam>{teams, {values.data(), bins.data(), count}}.start(place);
  }
  const std::int64_t num_blocks = (count + block - 1) / block;
  const Scratch<BlockSums> blocks(num_blocks);
  launch(num_blocks, grain_blocks, SquareBlocks{values.data(), blocks.data(), count});
  constexpr std::int64_t low_bits = (std::int64_t{1} << SquareBins::split_bits) - 1;
  for (const BlockSums& sums : std::span(blocks.data(), static_cast<std::size_t>(num_blocks))) {
    for (std::size_t bin = 0; bin < num_bins; ++bin) {
      bins[bin] += sums.bins[bin] >> SquareBins::split_bits;
      bins[num_bins + bin] += sums.bins[bin] & low_bits;
    }
    bins.back() += sums.in_range ? 0 : 1;
  }
}

ExactSquares exact_squared_sum(std::span<const float> values) {
  std::array<std::int64_t, SquareBins::num_values> bins{};
  add_exact_squares(values, bins);
  return sum_of(SquareBins::from(bins));
}

}  // namespace finetune::kernels
