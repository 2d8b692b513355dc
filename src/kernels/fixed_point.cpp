// SPDX-License-Identifier: Apache-2.0
#include "kernels/fixed_point.hpp"

#include <cmath>
#include <iterator>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"
#include "kernels/detail/scratch.hpp"

namespace finetune::kernels {
namespace {

enum class Store { overwrite, add };

constexpr std::int64_t block = 4096;
constexpr std::int64_t grain_blocks = grain_elements / block;

/// Integers wrap like the hardware's; a signed overflow would be undefined.
KOKKOS_FORCEINLINE_FUNCTION std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

/// The integer nearest to `x`, ties to even, for |x| < 2^51: adding 1.5 * 2^52 leaves it in the low
/// bits of the mantissa. Unlike a conversion this is vector code on every processor.
KOKKOS_FORCEINLINE_FUNCTION std::uint64_t nearest(double x) {
  constexpr std::uint64_t to_integer_bits = 0x4338000000000000u;
  return static_cast<std::uint64_t>(bits_of(x + 0x1.8p52)) - to_integer_bits;
}

/// The same for |x| < 2^62: multiples of 2^26 first, which leaves the parity to the rest.
KOKKOS_FORCEINLINE_FUNCTION std::int64_t nearest_wide(double x) {
  const double scaled = x * 0x1p-26;
  const double high = ((scaled + 0x1.8p52) - 0x1.8p52) * 0x1p26;
  return static_cast<std::int64_t>((nearest(scaled) << 26) + nearest(x - high));
}

template <class T, Store store>
struct ToFixed {
  const T* values;
  std::int64_t* target;
  std::int64_t* first_bad;  // a block
  std::int64_t count;
  double scale;
  float limit;

  KOKKOS_FORCEINLINE_FUNCTION bool is_bad(std::int64_t i) const {
    return !(std::fabs(to_float(values[i])) < limit);  // also true for NaN
  }

  KOKKOS_INLINE_FUNCTION void convert(std::int64_t first, std::int64_t last,
                                      std::int64_t& bad) const {
    std::int64_t any = 0;
#pragma GCC ivdep
    for (std::int64_t i = first; i < last; ++i) {
      // The product is exact: a power of two times a number of 24 bits.
      const std::int64_t fixed = nearest_wide(static_cast<double>(to_float(values[i])) * scale);
      target[i] = store == Store::add ? wrapping_sum(target[i], fixed) : fixed;
      any |= is_bad(i) ? 1 : 0;
    }
    bad = -1;
    if (any == 0) return;
    for (std::int64_t i = last - 1; i >= first; --i)
      bad = is_bad(i) ? i : bad;
  }

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t index = first; index < last; ++index) {
      const std::int64_t begin = index * block, left = count - begin;
      convert(begin, begin + (left < block ? left : block), first_bad[index]);
    }
  }
};

/// As FirstOutOfRange has it.
KOKKOS_FORCEINLINE_FUNCTION std::uint64_t packed(std::int64_t element, float value) {
  return static_cast<std::uint64_t>(element) << 32 | bits_of(value);
}

/// One element, by a thread of a GPU.
template <class T, Store store>
struct ElementToFixed {
  const T* values;
  std::int64_t* target;
  std::uint64_t* found;
  double scale;
  float limit;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const float value = to_float(values[i]);
    const std::int64_t fixed = nearest_wide(static_cast<double>(value) * scale);
    target[i] = store == Store::add ? wrapping_sum(target[i], fixed) : fixed;
    if (!(std::fabs(value) < limit)) lower_for_all(found, packed(i, value));
  }
};

struct FromFixed {
  const std::int64_t* values;
  float* target;
  double unit;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
#pragma GCC ivdep
    for (std::int64_t i = first; i < last; ++i)
      target[i] = static_cast<float>(static_cast<double>(values[i]) * unit);
  }
};

struct AddIntegers {
  const std::int64_t* terms;
  std::int64_t* sum;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
#pragma GCC ivdep
    for (std::int64_t i = first; i < last; ++i)
      sum[i] = wrapping_sum(sum[i], terms[i]);
  }
};

double scale_of(const FixedPoint& format) {
  const double scale = std::ldexp(1.0, format.scale_bits);
  core::check(format.limit * scale <= 0x1p62, "fixed_point: the limit fits into 62 bits");
  return scale;
}

template <Store store, class T>
std::int64_t convert(std::span<const T> values, const FixedPoint& format,
                     std::span<std::int64_t> target) {
  core::check(values.size() == target.size(), "fixed_point: both spans have the same size");
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t blocks = (count + block - 1) / block;
  const Scratch<std::int64_t> first_bad(blocks);
  launch(blocks, grain_blocks,
         ToFixed<T, store>{values.data(), target.data(), first_bad.data(), count, scale_of(format),
                           format.limit});
  for (const std::int64_t bad : std::span(first_bad.data(), static_cast<std::size_t>(blocks))) {
    if (bad >= 0) return bad;
  }
  return -1;
}

template <Store store, class T>
void convert(std::span<const T> values, const FixedPoint& format, std::span<std::int64_t> target,
             std::span<std::int64_t, 1> found, const Place& place) {
  core::check(values.size() == target.size(), "fixed_point: both spans have the same size");
  core::check(values.size() < std::size_t{1} << 32, "fixed_point: 2^32 elements at most at once");
  auto* least = reinterpret_cast<std::uint64_t*>(found.data());
  if (place.is_gpu()) {
    const ElementToFixed<T, store> of_one{values.data(), target.data(), least, scale_of(format),
                                          format.limit};
    return Threads<ElementToFixed<T, store>>{std::ssize(values), of_one}.start(place);
  }
  const std::int64_t bad = convert<store>(values, format, target);
  if (bad >= 0) lower_for_all(least, packed(bad, to_float(values[static_cast<std::size_t>(bad)])));
}

}  // namespace

template <class T>
std::int64_t to_fixed(std::span<const T> values, const FixedPoint& format,
                      std::span<std::int64_t> target) {
  return convert<Store::overwrite>(values, format, target);
}

template <class T>
std::int64_t add_fixed(std::span<const T> values, const FixedPoint& format,
                       std::span<std::int64_t> sum) {
  return convert<Store::add>(values, format, sum);
}

template <class T>
void to_fixed(std::span<const T> values, const FixedPoint& format, std::span<std::int64_t> target,
              std::span<std::int64_t, 1> found, const Place& place) {
  convert<Store::overwrite>(values, format, target, found, place);
}

template <class T>
void add_fixed(std::span<const T> values, const FixedPoint& format, std::span<std::int64_t> sum,
               std::span<std::int64_t, 1> found, const Place& place) {
  convert<Store::add>(values, format, sum, found, place);
}

std::optional<FirstOutOfRange> FirstOutOfRange::from(std::int64_t found) {
  if (found == none) return std::nullopt;
  const auto bits = static_cast<std::uint64_t>(found);
  return FirstOutOfRange{static_cast<std::int64_t>(bits >> 32),
                         float_of(static_cast<std::uint32_t>(bits))};
}

void from_fixed(std::span<const std::int64_t> values, int scale_bits, std::span<float> target,
                const Place& place) {
  core::check(values.size() == target.size(), "fixed_point: both spans have the same size");
  launch(place, static_cast<std::int64_t>(values.size()), grain_elements,
         FromFixed{values.data(), target.data(), std::ldexp(1.0, -scale_bits)});
}

void add(std::span<const std::int64_t> terms, std::span<std::int64_t> sum) {
  core::check(terms.size() == sum.size(), "fixed_point: both spans have the same size");
  launch(static_cast<std::int64_t>(sum.size()), grain_elements,
         AddIntegers{terms.data(), sum.data()});
}

template std::int64_t to_fixed(std::span<const float>, const FixedPoint&, std::span<std::int64_t>);
template std::int64_t to_fixed(std::span<const bf16>, const FixedPoint&, std::span<std::int64_t>);
template std::int64_t to_fixed(std::span<const f16>, const FixedPoint&, std::span<std::int64_t>);
template std::int64_t add_fixed(std::span<const float>, const FixedPoint&, std::span<std::int64_t>);
template std::int64_t add_fixed(std::span<const bf16>, const FixedPoint&, std::span<std::int64_t>);
template std::int64_t add_fixed(std::span<const f16>, const FixedPoint&, std::span<std::int64_t>);

template void to_fixed(std::span<const float>, const FixedPoint&, std::span<std::int64_t>,
                       std::span<std::int64_t, 1>, const Place&);
template void to_fixed(std::span<const bf16>, const FixedPoint&, std::span<std::int64_t>,
                       std::span<std::int64_t, 1>, const Place&);
template void to_fixed(std::span<const f16>, const FixedPoint&, std::span<std::int64_t>,
                       std::span<std::int64_t, 1>, const Place&);
template void add_fixed(std::span<const float>, const FixedPoint&, std::span<std::int64_t>,
                        std::span<std::int64_t, 1>, const Place&);
template void add_fixed(std::span<const bf16>, const FixedPoint&, std::span<std::int64_t>,
                        std::span<std::int64_t, 1>, const Place&);
template void add_fixed(std::span<const f16>, const FixedPoint&, std::span<std::int64_t>,
                        std::span<std::int64_t, 1>, const Place&);

}  // namespace finetune::kernels
