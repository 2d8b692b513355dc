// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_codes.hpp"

#include "core/dtype.hpp"
#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/host_threads.hpp"
#include "kernels/mxfp4.hpp"

namespace finetune::kernels {
namespace {

/// Two codes a byte, lower half first, of `count` numbers with sixteen values.
template <class T>
void look_up(const std::uint8_t* codes, std::int64_t count, const T (&table)[16], T* out) {
  for (std::int64_t i = 0; i < count / 2; ++i) {
    out[2 * i] = table[codes[i] & 15];
    out[2 * i + 1] = table[codes[i] >> 4];
  }
}

template <class T>
struct UnpackGroups {
  RowIntegers args;
  T* out;

  void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t g = first; g < last; ++g) {
      const auto at = static_cast<std::size_t>(g);
      const float zero = args.zeros.empty() ? static_cast<float>(1 << (args.bits - 1))
                                            : static_cast<float>(args.zeros[at]);
      const std::uint8_t* codes = args.codes.data() + g * args.group * args.bits / 8;
      if (args.bits == 8) {
        multiply(codes, args.scales[at], zero, out + g * args.group);
      } else {
        T table[16];
        for (int code = 0; code < 16; ++code)
          table[code] = product(static_cast<float>(code) - zero, args.scales[at]);
        look_up(codes, args.group, table, out + g * args.group);
      }
    }
  }

  T product(float difference, float scale) const {
    return round_to<T>(difference * scale * args.factor);
  }

  void multiply(const std::uint8_t* codes, float scale, float zero, T* to) const {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < args.group; ++i)
      to[i] = product(static_cast<float>(codes[i]) - zero, scale);
  }
};

}  // namespace

template <class T>
void integers_dequantize(const RowIntegers& args, std::span<T> out) {
  core::check(args.bits == 4 || args.bits == 8, "integers: codes have 4 or 8 bits");
  core::check(args.columns > 0 && args.group > 0 && args.columns % args.group == 0 &&
                  args.group * args.bits % 8 == 0,
              "integers: groups are whole, and so are their bytes");
  core::check(std::ssize(args.codes) * 8 == std::ssize(out) * args.bits &&
                  std::ssize(out) % args.columns == 0,
              "integers: a code for each element of whole rows");
  core::check(std::ssize(args.scales) * args.group == std::ssize(out) &&
                  (args.zeros.empty() || args.zeros.size() == args.scales.size()),
              "integers: a scale, and a zero or none, for each group");
  launch(std::ssize(args.scales), grain_rows(args.group), UnpackGroups<T>{args, out.data()});
}

template <class T>
void nvfp4_dequantize(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                      float divisor, std::span<T> out) {
  core::check(out.size() == 2 * codes.size() && std::ssize(out) == nvfp4_block * std::ssize(scales),
              "nvfp4: two codes a byte, and a scale for 16 of them");
  launch(std::ssize(scales), grain_rows(nvfp4_block), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      const float scale = core::f8_e4m3_to_float(scales[static_cast<std::size_t>(block)]) / divisor;
      T table[16];
      for (std::size_t code = 0; code < 16; ++code)
        table[code] = round_to<T>(mxfp4_levels[code] * scale);
      look_up(codes.data() + block * nvfp4_block / 2, nvfp4_block, table,
              out.data() + block * nvfp4_block);
    }
  });
}

template void integers_dequantize(const RowIntegers&, std::span<float>);
template void integers_dequantize(const RowIntegers&, std::span<bf16>);
template void nvfp4_dequantize(std::span<const std::uint8_t>, std::span<const std::uint8_t>, float,
                               std::span<float>);
template void nvfp4_dequantize(std::span<const std::uint8_t>, std::span<const std::uint8_t>, float,
                               std::span<bf16>);

}  // namespace finetune::kernels
