// SPDX-License-Identifier: Apache-2.0
#include "kernels/mxfp4.hpp"

#include <cmath>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/host_threads.hpp"

namespace finetune::kernels {

float mxfp4_scale(std::uint8_t exponent) {
  constexpr int bias = 127;
  return std::ldexp(1.0f, static_cast<int>(exponent) - bias);
}

template <class T>
void mxfp4_dequantize(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> exponents,
                      std::span<T> out) {
  constexpr std::int64_t grain_blocks = 1024, bytes = mxfp4_block / 2;
  core::check(out.size() == 2 * codes.size() && codes.size() == bytes * exponents.size(),
              "mxfp4: two codes a byte, and an exponent for 32 of them");
  launch(std::ssize(exponents), grain_blocks, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      const float scale = mxfp4_scale(exponents[static_cast<std::size_t>(block)]);
      T table[16];
      for (std::size_t code = 0; code < 16; ++code)
        table[code] = round_to<T>(mxfp4_levels[code] * scale);
      const std::uint8_t* from = codes.data() + block * bytes;
      T* to = out.data() + block * mxfp4_block;
      for (std::int64_t i = 0; i < bytes; ++i) {
        to[2 * i] = table[from[i] & 15];
        to[2 * i + 1] = table[from[i] >> 4];
      }
    }
  });
}

template void mxfp4_dequantize(std::span<const std::uint8_t>, std::span<const std::uint8_t>,
                               std::span<float>);
template void mxfp4_dequantize(std::span<const std::uint8_t>, std::span<const std::uint8_t>,
                               std::span<bf16>);

}  // namespace finetune::kernels
