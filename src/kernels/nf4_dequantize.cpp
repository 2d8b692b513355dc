// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"
#include "kernels/detail/nf4_lookup.hpp"
#include "kernels/nf4.hpp"

namespace finetune::kernels {
namespace {

constexpr std::int64_t grain_blocks = grain_elements / nf4_block;

std::int64_t num_blocks(std::int64_t count, std::int64_t block) {
  return (count + block - 1) / block;
}

/// The numbers of a functor for the levels: device code cannot read the host's tables.
struct Maxima {
  const float* absmax;  // or null, and then the others
  const std::uint8_t* absmax_codes;
  const float* nested_absmax;
  const float* offset_at;  // or null
  float offset;
  float by_code[256];

  KOKKOS_INLINE_FUNCTION float operator()(std::int64_t block) const {
    if (absmax != nullptr) return absmax[block];
    const float shift = offset_at != nullptr ? *offset_at : offset;
    return by_code[absmax_codes[block]] * nested_absmax[block / nested_block] + shift;
  }
};

template <class T>
struct Dequantize {
  const std::uint8_t* codes;
  T* out;
  std::int64_t count;
  float by_code[16];
  Maxima maxima;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block * nf4_block, left = count - begin;
      const float largest = maxima(block);
      T table[16];
      for (int code = 0; code < 16; ++code)
        table[code] = round_to<T>(by_code[code] * largest);
      const std::uint8_t* bytes = codes + begin / 2;
      if (left >= nf4_block) {
        look_up_block(bytes, table, out + begin);
        continue;
      }
      for (std::int64_t i = 0; i < left; ++i)
        out[begin + i] = table[bytes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
    }
  }
};

/// A byte each: two elements.
template <class T>
struct DequantizeByte {
  Dequantize<T> by;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const float largest = by.maxima(2 * i / nf4_block);
    const std::uint8_t byte = by.codes[i];
    by.out[2 * i] = round_to<T>(by.by_code[byte >> 4] * largest);
    if (2 * i + 1 < by.count) by.out[2 * i + 1] = round_to<T>(by.by_code[byte & 15] * largest);
  }
};

}  // namespace

template <class T>
void nf4_dequantize(const Nf4<T>& args, const Place& place) {
  const std::int64_t count = std::ssize(args.out), blocks = num_blocks(count, nf4_block);
  core::check(std::ssize(args.codes) == (count + 1) / 2, "nf4: two codes a byte");
  const bool is_nested = args.absmax.empty() && count > 0;
  core::check((is_nested ? std::ssize(args.absmax_codes) : std::ssize(args.absmax)) == blocks,
              "nf4: one absmax a block");
  core::check(!is_nested || std::ssize(args.nested_absmax) == num_blocks(blocks, nested_block),
              "nf4: one nested absmax for 256 maxima");
  Dequantize<T> dequantize{args.codes.data(),
                           args.out.data(),
                           count,
                           {},
                           {is_nested ? nullptr : args.absmax.data(),
                            args.absmax_codes.data(),
                            args.nested_absmax.data(),
                            args.offset_at.empty() ? nullptr : args.offset_at.data(),
                            args.offset,
                            {}}};
  std::ranges::copy(nf4_levels(), dequantize.by_code);
  std::ranges::copy(nested_levels(), dequantize.maxima.by_code);
  launch(place, blocks, grain_blocks, dequantize,
         Threads<DequantizeByte<T>>{std::ssize(args.codes), {dequantize}});
}

template void nf4_dequantize(const Nf4<float>&, const Place&);
template void nf4_dequantize(const Nf4<bf16>&, const Place&);

}  // namespace finetune::kernels
