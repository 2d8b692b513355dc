// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/reduce.hpp"

#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/host_threads.hpp"
#include "kernels/detail/scratch.hpp"

namespace finetune::kernels {
namespace {

constexpr std::int64_t grain_blocks = grain_elements / reduction_block;

struct Block {
  std::int64_t begin, size;
};

KOKKOS_INLINE_FUNCTION Block block_at(std::int64_t index, std::int64_t count) {
  const std::int64_t begin = index * reduction_block, left = count - begin;
  return {begin, left < reduction_block ? left : reduction_block};
}

template <class T>
struct SquaredSums {
  const T* values;
  double* sums;  // a block
  std::int64_t count;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t index = first; index < last; ++index) {
      const Block block = block_at(index, count);
      const T* begin = values + block.begin;
      sums[index] = lane_sum<double>(block.size, [=](std::int64_t i) {
        const double value = to_float(begin[i]);
        return value * value;
      });
    }
  }
};

KOKKOS_FORCEINLINE_FUNCTION std::uint32_t not_finite(float value) {
  return (bits_of(value) & 0x7F800000u) == 0x7F800000u;
}
KOKKOS_FORCEINLINE_FUNCTION bf16 not_finite(bf16 value) {
  return (value & 0x7F80u) == 0x7F80u;
}

template <class T>
struct CountNotFinite {
  using Count = decltype(not_finite(T{}));
  const T* values;
  std::uint8_t* found;  // a block
  std::int64_t count;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t index = first; index < last; ++index) {
      const Block block = block_at(index, count);
      const T* begin = values + block.begin;
      Count any = 0;
      for (std::int64_t i = 0; i < block.size; ++i)
        any |= not_finite(begin[i]);
      found[index] = any != 0;
    }
  }
};

std::int64_t num_blocks(std::int64_t count) {
  return (count + reduction_block - 1) / reduction_block;
}

}  // namespace

template <class T>
double squared_sum(std::span<const T> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t blocks = num_blocks(count);
  const Scratch<double> sums(blocks);
  launch(blocks, grain_blocks, SquaredSums<T>{values.data(), sums.data(), count});
  double total = 0.0;
  for (const double sum : std::span(sums.data(), static_cast<std::size_t>(blocks)))
    total += sum;
  return total;
}

template <class T>
bool all_finite(std::span<const T> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t blocks = num_blocks(count);
  const Scratch<std::uint8_t> found(blocks);
  launch(blocks, grain_blocks, CountNotFinite<T>{values.data(), found.data(), count});
  const std::uint8_t* first = found.data();
  return std::find(first, first + blocks, std::uint8_t{1}) == first + blocks;
}

template double squared_sum(std::span<const float>);
template double squared_sum(std::span<const bf16>);
template bool all_finite(std::span<const float>);
template bool all_finite(std::span<const bf16>);

}  // namespace finetune::kernels
