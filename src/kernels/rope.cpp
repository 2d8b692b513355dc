// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.hpp"

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"

namespace finetune::kernels {
namespace {

template <class T>
struct Rotate {
  T* qkv;
  const float *cos, *sin;
  const std::int64_t* positions;
  std::int64_t row_size, rotated_heads, head_size, half;
  float sign;
  bool are_neighbours;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t token = first; token < last; ++token) {
      const float* c = cos + positions[token] * half;
      const float* s = sin + positions[token] * half;
      T* row = qkv + token * row_size;
      for (std::int64_t head = 0; head < rotated_heads; ++head) {
        if (are_neighbours) {
          turn_neighbours(row + head * head_size, c, s);
        } else {
          turn(row + head * head_size, c, s);
        }
      }
    }
  }

  KOKKOS_INLINE_FUNCTION void turn_neighbours(T* head, const float* c, const float* s) const {
    for (std::int64_t j = 0; j < half; ++j) {
      const float a = to_float(head[2 * j]), b = to_float(head[2 * j + 1]), sine = sign * s[j];
      head[2 * j] = round_to<T>(a * c[j] - b * sine);
      head[2 * j + 1] = round_to<T>(b * c[j] + a * sine);
    }
  }

  KOKKOS_INLINE_FUNCTION void turn(T* head, const float* c, const float* s) const {
    T *lower = head, *upper = head + half;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < half; ++j) {
      const float a = to_float(lower[j]), b = to_float(upper[j]), sine = sign * s[j];
      lower[j] = round_to<T>(a * c[j] - b * sine);
      upper[j] = round_to<T>(b * c[j] + a * sine);
    }
  }
};

/// A pair of channels each.
template <class T>
struct RotatePair {
  Rotate<T> by;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t j = i % by.half, head = i / by.half;
    const std::int64_t token = head / by.rotated_heads;
    const std::int64_t angle = by.positions[token] * by.half + j;
    T* channels = by.qkv + token * by.row_size + head % by.rotated_heads * by.head_size;
    T& lower = channels[by.are_neighbours ? 2 * j : j];
    T& upper = channels[by.are_neighbours ? 2 * j + 1 : j + by.half];
    const float a = to_float(lower), b = to_float(upper);
    const float cosine = by.cos[angle], sine = by.sign * by.sin[angle];
    lower = round_to<T>(a * cosine - b * sine);
    upper = round_to<T>(b * cosine + a * sine);
  }
};

/// A pack of the first half of a head's channels each, with that of the second half.
template <class T>
struct RotatePack {
  Rotate<T> by;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    constexpr int size = Pack<T>::size, angles = Pack<float>::size;
    const std::int64_t packs = by.half / size, j = i % packs * size, head = i / packs;
    const std::int64_t token = head / by.rotated_heads;
    const std::int64_t angle = by.positions[token] * by.half + j;
    T* lower = by.qkv + token * by.row_size + head % by.rotated_heads * by.head_size + j;
    Pack<T> low = load_pack(lower), high = load_pack(lower + by.half);
    for (int first = 0; first < size; first += angles) {
      const Pack<float> cosines = load_pack(by.cos + angle + first);
      const Pack<float> sines = load_pack(by.sin + angle + first);
      for (int k = 0; k < angles; ++k) {
        const float a = to_float(low.at[first + k]), b = to_float(high.at[first + k]);
        const float cosine = cosines.at[k], sine = by.sign * sines.at[k];
        low.at[first + k] = round_to<T>(a * cosine - b * sine);
        high.at[first + k] = round_to<T>(b * cosine + a * sine);
      }
    }
    store_pack(lower, low);
    store_pack(lower + by.half, high);
  }
};

void check_positions(std::span<const std::int64_t> positions, std::int64_t length) {
  bool inside = true;
  for (const std::int64_t position : positions)
    inside &= position >= 0 && position < length;
  core::check(inside, "rope: every position lies in the table");
}

}  // namespace

template <class T>
void rope(const Rope<T>& args, const Place& place) {
  const std::int64_t rotary_size = args.rotary_size > 0 ? args.rotary_size : args.head_size;
  core::check(rotary_size > 0 && rotary_size % 2 == 0 && rotary_size <= args.head_size,
              "rope: the size of what turns is even");
  core::check(args.query_heads >= 0 && args.key_heads >= 0, "rope: head counts are not negative");
  const std::int64_t row_size = (args.query_heads + 2 * args.key_heads) * args.head_size;
  const std::int64_t half = rotary_size / 2;
  const auto tokens = static_cast<std::int64_t>(args.positions.size());
  core::check(static_cast<std::int64_t>(args.qkv.size()) == tokens * row_size,
              "rope: qkv is [N, (query_heads + 2 key_heads) * K]");
  core::check(
      args.cos.size() == args.sin.size() && static_cast<std::int64_t>(args.cos.size()) % half == 0,
      "rope: cos and sin are [L, R/2]");
  if (!place.is_gpu())
    check_positions(args.positions, static_cast<std::int64_t>(args.cos.size()) / half);
  const Rotate<T> rotate{args.qkv.data(),
                         args.cos.data(),
                         args.sin.data(),
                         args.positions.data(),
                         row_size,
                         args.query_heads + args.key_heads,
                         args.head_size,
                         half,
                         args.rotation == Rotation::forward ? 1.0f : -1.0f,
                         args.pairs == Pairs::neighbours};
  const std::int64_t pairs = tokens * rotate.rotated_heads * half;
  if (!rotate.are_neighbours && args.head_size % Pack<T>::size == 0 &&
      are_packs<T>(half, args.qkv.data(), args.cos.data(), args.sin.data()))
    launch(place, tokens, grain_rows(row_size), rotate,
           Threads<RotatePack<T>>{pairs / Pack<T>::size, {rotate}});
  else
    launch(place, tokens, grain_rows(row_size), rotate, Threads<RotatePair<T>>{pairs, {rotate}});
}

template void rope(const Rope<float>&, const Place&);
template void rope(const Rope<bf16>&, const Place&);

}  // namespace finetune::kernels
