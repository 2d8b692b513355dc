// SPDX-License-Identifier: Apache-2.0
#include "kernels/gptq.hpp"

#include <algorithm>
#include <iterator>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"

namespace finetune::kernels {
namespace {

constexpr std::int64_t bits_a_word = 32;

/// Outputs that are done at once: a group's scales and zeros are unpacked for as many.
constexpr std::int64_t tile = 256;

/// Piece p: words of row p % word_rows, of the outputs in tile p / word_rows. So a thread goes down
/// the inputs and unpacks a group's numbers once where the inputs are in order.
template <class T, int Bits>
struct Dequantize {
  static constexpr std::int64_t codes_a_word = bits_a_word / Bits;
  static constexpr std::uint32_t mask = (1u << Bits) - 1;
  const std::int32_t *qweight, *qzeros;
  const f16* scales;
  const std::int32_t* g_idx;
  T* out;
  std::int64_t out_stride, outputs, word_rows;
  std::int32_t stored_zero_offset;

  struct Group {
    std::int64_t number = -1;
    float scales[tile];
    std::int32_t zeros[tile];
  };

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    Group group;
    std::int64_t begin_before = -1;
    for (std::int64_t piece = first; piece < last; ++piece) {
      const std::int64_t row = piece % word_rows, begin = piece / word_rows * tile;
      const std::int64_t left = outputs - begin, length = left < tile ? left : tile;
      if (begin != begin_before) group.number = -1;
      begin_before = begin;
      for (std::int64_t i = 0; i < codes_a_word; ++i) {
        const std::int64_t input = row * codes_a_word + i;
        if (g_idx[input] != group.number) unpack(g_idx[input], begin, length, group);
        multiply(qweight + row * outputs + begin, static_cast<int>(Bits * i), length, group,
                 out + input * out_stride + begin);
      }
    }
  }

  KOKKOS_INLINE_FUNCTION void unpack(std::int64_t number, std::int64_t begin, std::int64_t length,
                                     Group& group) const {
    group.number = number;
    const f16* from = scales + number * outputs + begin;
    const std::int32_t* words = qzeros + (number * outputs + begin) / codes_a_word;
    for (std::int64_t o = 0; o < length; ++o)
      group.scales[o] = to_float(from[o]);
    for (std::int64_t w = 0; w < length / codes_a_word; ++w) {
      const auto word = static_cast<std::uint32_t>(words[w]);
      for (int i = 0; i < codes_a_word; ++i) {
        group.zeros[w * codes_a_word + i] =
            static_cast<std::int32_t>(word >> Bits * i & mask) + stored_zero_offset;
      }
    }
  }

  KOKKOS_INLINE_FUNCTION void multiply(const std::int32_t* words, int shift, std::int64_t length,
                                       const Group& group, T* target) const {
#pragma GCC ivdep
    for (std::int64_t o = 0; o < length; ++o) {
      const auto code =
          static_cast<std::int32_t>(static_cast<std::uint32_t>(words[o]) >> shift & mask);
      target[o] = round_to<T>(group.scales[o] * static_cast<float>(code - group.zeros[o]));
    }
  }
};

/// A word each: its inputs of an output.
template <class T, int Bits>
struct DequantizeWord {
  static constexpr std::int64_t codes_a_word = bits_a_word / Bits;
  static constexpr std::uint32_t mask = (1u << Bits) - 1;
  Dequantize<T, Bits> by;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t row = i / by.outputs, output = i % by.outputs;
    const auto word = static_cast<std::uint32_t>(by.qweight[i]);
    for (int k = 0; k < codes_a_word; ++k) {
      const std::int64_t input = row * codes_a_word + k;
      const std::int64_t at = by.g_idx[input] * by.outputs + output;
      const auto zeros = static_cast<std::uint32_t>(by.qzeros[at / codes_a_word]);
      const auto zero = static_cast<std::int32_t>(zeros >> Bits * (at % codes_a_word) & mask) +
                        by.stored_zero_offset;
      const auto code = static_cast<std::int32_t>(word >> Bits * k & mask);
      by.out[input * by.out_stride + output] =
          round_to<T>(to_float(by.scales[at]) * static_cast<float>(code - zero));
    }
  }
};

template <class T>
void check(const Gptq<T>& args, std::int64_t groups, const Place& place) {
  core::check(args.bits == 4 || args.bits == 8, "gptq: codes have 4 or 8 bits");
  const std::int64_t codes_a_word = bits_a_word / args.bits;
  core::check(args.inputs >= 0 && args.inputs % codes_a_word == 0 && args.outputs > 0 &&
                  args.outputs % codes_a_word == 0,
              "gptq: inputs and outputs are whole words");
  core::check(std::ssize(args.qweight) * codes_a_word == args.inputs * args.outputs,
              "gptq: qweight is [I/codes a word, O]");
  core::check(std::ssize(args.scales) == groups * args.outputs, "gptq: scales are [G, O]");
  core::check(std::ssize(args.qzeros) * codes_a_word == groups * args.outputs,
              "gptq: qzeros are [G, O/codes a word]");
  core::check(std::ssize(args.g_idx) == args.inputs, "gptq: g_idx is [I]");
  core::check(args.stored_zero_offset == 0 || args.stored_zero_offset == 1,
              "gptq: a stored zero is one too small or right");
  core::check(args.out_stride >= args.outputs, "gptq: rows do not overlap");
  core::check(place.is_gpu() || first_bad_group(args.g_idx, groups) < 0,
              "gptq: every group has scales and zeros");
}

template <class T, int Bits>
void dequantize_bits(const Gptq<T>& args, const Place& place) {
  const std::int64_t codes_a_word = bits_a_word / Bits;
  const std::int64_t word_rows = args.inputs / codes_a_word;
  const std::int64_t num_tiles = (args.outputs + tile - 1) / tile;
  const Dequantize<T, Bits> dequantize{
      args.qweight.data(), args.qzeros.data(), args.scales.data(),
      args.g_idx.data(),   args.out,           args.out_stride,
      args.outputs,        word_rows,          static_cast<std::int32_t>(args.stored_zero_offset)};
  launch(place, num_tiles * word_rows, grain_rows(codes_a_word * tile), dequantize,
         Threads<DequantizeWord<T, Bits>>{std::ssize(args.qweight), {dequantize}});
}

}  // namespace

std::int64_t first_bad_group(std::span<const std::int32_t> g_idx, std::int64_t groups) {
  const auto bad = [&](std::int32_t group) { return group < 0 || group >= groups; };
  const auto found = std::ranges::find_if(g_idx, bad);
  return found == g_idx.end() ? -1 : found - g_idx.begin();
}

template <class T>
void gptq_dequantize(const Gptq<T>& args, const Place& place) {
  check(args, args.outputs > 0 ? std::ssize(args.scales) / args.outputs : 0, place);
  if (args.bits == 8) return dequantize_bits<T, 8>(args, place);
  dequantize_bits<T, 4>(args, place);
}

template void gptq_dequantize(const Gptq<float>&, const Place&);
template void gptq_dequantize(const Gptq<bf16>&, const Place&);

}  // namespace finetune::kernels
