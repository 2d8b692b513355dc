// SPDX-License-Identifier: Apache-2.0
#include "kernels/nf4.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/dynamic_map.hpp"
#include "kernels/detail/host_threads.hpp"
#include "kernels/detail/scratch.hpp"

namespace finetune::kernels {
namespace {

constexpr std::array<float, 16> levels = {
    -0x1.000000p+0f, -0x1.647362p-1f, -0x1.0cd660p-1f, -0x1.946540p-2f,
    -0x1.23449ap-2f, -0x1.7a6a7ep-3f, -0x1.74f0e2p-4f, 0.0f,
    0x1.45f5fep-4f,  0x1.4995c6p-3f,  0x1.f809bap-3f,  0x1.5a0674p-2f,
    0x1.c34970p-2f,  0x1.200f56p-1f,  0x1.722766p-1f,  0x1.000000p+0f};

std::int64_t num_blocks(std::int64_t count, std::int64_t block) {
  return (count + block - 1) / block;
}

constexpr std::int64_t grain_blocks = grain_elements / nf4_block;

struct BlockMaxima {
  const float* values;
  float* absmax;
  std::int64_t count;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block * nf4_block, left = count - begin;
      const float* x = values + begin;
      const float largest = lane_max(left < nf4_block ? left : nf4_block,
                                     [&](std::int64_t i) { return std::abs(x[i]); });
      absmax[block] = largest > 0.0f ? largest : 0.0f;
    }
  }
};

/// Levels and the middles between neighbours: how many middles lie below a value is the number of
/// its nearest level, the lower one of two at the same distance.
struct Quantize {
  const float *values, *absmax;
  std::uint8_t* codes;
  std::int64_t count;
  float middles[15];

  KOKKOS_INLINE_FUNCTION std::uint32_t nearest(float value) const {
    std::uint32_t code = 0;
    for (const float middle : middles)
      code += middle < value ? 1u : 0u;
    return code;
  }

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block * nf4_block, left = count - begin;
      const std::int64_t length = left < nf4_block ? left : nf4_block;
      const float largest = absmax[block] > 1e-38f ? absmax[block] : 1e-38f;
      const float reciprocal = 1.0f / largest;
      std::uint32_t chosen[nf4_block];
      for (std::int64_t i = 0; i < length; ++i) {
        const float value = values[begin + i];
        chosen[i] = nearest(length == nf4_block ? value * reciprocal : value / largest);
      }
      if (length % 2 != 0) chosen[length] = 7;
      std::uint8_t* bytes = codes + begin / 2;
      for (std::int64_t i = 0; i < (length + 1) / 2; ++i)
        bytes[i] = static_cast<std::uint8_t>(chosen[2 * i] << 4 | chosen[2 * i + 1]);
    }
  }
};

struct NestedQuantize {
  const float* absmax;
  float offset;
  std::uint8_t* codes;
  float* nested_absmax;
  std::int64_t count;
  float middles[255];

  /// As for Quantize; the middles are searched by halves.
  KOKKOS_INLINE_FUNCTION std::uint8_t nearest(float value) const {
    int code = 0;
    for (int half = 128; half > 0; half /= 2)
      code += middles[code + half - 1] < value ? half : 0;
    return static_cast<std::uint8_t>(code);
  }

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block * nested_block, left = count - begin;
      const std::int64_t length = left < nested_block ? left : nested_block;
      const float* x = absmax + begin;
      const float shift = offset;
      const float largest =
          lane_max(length, [&](std::int64_t i) { return std::abs(x[i] - shift); });
      nested_absmax[block] = largest > 0.0f ? largest : 0.0f;
      const float reciprocal = 1.0f / (largest > 1e-38f ? largest : 1e-38f);
      for (std::int64_t i = 0; i < length; ++i) {
        const float grid = ((x[i] - shift) * reciprocal + 1.0f) * 32767.5f + 0.5f;
        const float number = std::trunc(grid < 0.0f ? 0.0f : grid > 65535.0f ? 65535.0f : grid);
        codes[begin + i] = largest > 0.0f ? nearest(2.0f * number / 65535.0f - 1.0f) : 0;
      }
    }
  }
};

/// The first index in each piece, or -1.
struct FirstNonFinite {
  const float* values;
  std::int64_t* found;
  std::int64_t count;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t piece = first; piece < last; ++piece) {
      const std::int64_t begin = piece * grain_elements, left = count - begin;
      const std::int64_t end = begin + (left < grain_elements ? left : grain_elements);
      std::uint32_t largest = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint32_t magnitude = bits_of(values[i]) & 0x7FFFFFFFu;
        largest = magnitude > largest ? magnitude : largest;
      }
      found[piece] = -1;
      for (std::int64_t i = begin; largest >= 0x7F800000u && found[piece] < 0; ++i) {
        if ((bits_of(values[i]) & 0x7FFFFFFFu) >= 0x7F800000u) found[piece] = i;
      }
    }
  }
};

/// The partial sums do not depend on the number of threads.
struct PartialSums {
  const float* values;
  double* sums;
  std::int64_t count;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t i = first; i < last; ++i) {
      const float* x = values + i * grain_elements;
      const std::int64_t left = count - i * grain_elements;
      sums[i] = lane_sum<double>(left < grain_elements ? left : grain_elements,
                                 [&](std::int64_t j) { return double{x[j]}; });
    }
  }
};

template <std::size_t count>
void set_middles(float (&middles)[count], std::span<const float, count + 1> of) {
  for (std::size_t i = 0; i < count; ++i)
    middles[i] = (of[i] + of[i + 1]) / 2.0f;
}

}  // namespace

std::span<const float, 16> nf4_levels() {
  return levels;
}

std::span<const float, 256> nested_levels() {
  static const std::array<float, 256> nested = dynamic_map(Sign::both);
  return nested;
}

std::int64_t first_non_finite(std::span<const float> values) {
  const std::int64_t count = std::ssize(values), num_pieces = num_blocks(count, grain_elements);
  const Scratch<std::int64_t> found(num_pieces);
  launch(num_pieces, 1, FirstNonFinite{values.data(), found.data(), count});
  const std::int64_t* first = found.data();
  for (std::int64_t i = 0; i < num_pieces; ++i) {
    if (first[i] >= 0) return first[i];
  }
  return -1;
}

void nf4_absmax(std::span<const float> values, std::span<float> absmax) {
  core::check(std::ssize(absmax) == num_blocks(std::ssize(values), nf4_block),
              "nf4: one absmax a block");
  launch(std::ssize(absmax), grain_blocks,
         BlockMaxima{values.data(), absmax.data(), std::ssize(values)});
}

void nf4_quantize(std::span<const float> values, std::span<const float> absmax,
                  std::span<std::uint8_t> codes) {
  core::check(std::ssize(absmax) == num_blocks(std::ssize(values), nf4_block),
              "nf4: one absmax a block");
  core::check(std::ssize(codes) == (std::ssize(values) + 1) / 2, "nf4: two codes a byte");
  Quantize quantize{values.data(), absmax.data(), codes.data(), std::ssize(values), {}};
  set_middles(quantize.middles, nf4_levels());
  launch(std::ssize(absmax), grain_blocks, quantize);
}

float nested_offset(std::span<const float> absmax) {
  if (absmax.empty()) return 0.0f;
  const std::int64_t num_pieces = num_blocks(std::ssize(absmax), grain_elements);
  const Scratch<double> sums(num_pieces);
  launch(num_pieces, 1, PartialSums{absmax.data(), sums.data(), std::ssize(absmax)});
  const double* partial = sums.data();
  double sum = 0.0;
  for (std::int64_t i = 0; i < num_pieces; ++i)
    sum += partial[i];
  return static_cast<float>(sum / static_cast<double>(absmax.size()));
}

void nested_quantize(std::span<const float> absmax, float offset, std::span<std::uint8_t> codes,
                     std::span<float> nested_absmax) {
  core::check(codes.size() == absmax.size(), "nf4: one code a maximum");
  core::check(std::ssize(nested_absmax) == num_blocks(std::ssize(absmax), nested_block),
              "nf4: one nested absmax for 256 maxima");
  NestedQuantize quantize{absmax.data(),      offset, codes.data(), nested_absmax.data(),
                          std::ssize(absmax), {}};
  set_middles(quantize.middles, nested_levels());
  launch(std::ssize(nested_absmax), grain_elements / nested_block, quantize);
}

}  // namespace finetune::kernels
