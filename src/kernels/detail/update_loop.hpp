#pragma once
// SPDX-License-Identifier: Apache-2.0
// One pass of an optimizer over a flat piece of parameters, element by element.

#include <cstdint>
#include <optional>
#include <span>

#include "core/error.hpp"
#include "kernels/detail/launch.hpp"
#include "kernels/detail/rounding_bits.hpp"
#include "kernels/element.hpp"

namespace finetune::kernels {

/// `Update`: a functor over (element, random bits) that stores an element's new weight and states
/// and returns the weight, of which the copy is rounded.
template <class Update, class Copy, bool is_stochastic>
struct UpdateLoop {
  Update update;
  Copy* copy;  // or null
  RoundingBits rounding;
  std::int64_t index;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    if constexpr (is_stochastic) {
      constexpr std::int64_t tile = 4 * rounding_tile;
      for (std::int64_t begin = first; begin < last; begin += tile) {
        const std::int64_t left = last - begin, length = left < tile ? left : tile;
        std::uint32_t random[tile];
        rounding.draw(index + begin, length, random);
        update_all(begin, begin + length, random);
      }
    } else {
      update_all(first, last, nullptr);
    }
  }

  KOKKOS_FORCEINLINE_FUNCTION void update_all(std::int64_t first, std::int64_t last,
                                              const std::uint32_t* random) const {
    const auto bits = [&](std::int64_t i) { return is_stochastic ? random[i - first] : 0u; };
    if (copy == nullptr) {
#pragma GCC ivdep
      for (std::int64_t i = first; i < last; ++i)
        update(i, bits(i));
      return;
    }
#pragma GCC ivdep
    for (std::int64_t i = first; i < last; ++i)
      copy[i] = round_to<Copy>(update(i, bits(i)));
  }
};

/// The same for one element, by a thread of a GPU.
template <class Update, class Copy, bool is_stochastic>
struct UpdateElement {
  UpdateLoop<Update, Copy, is_stochastic> loop;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const float updated = loop.update(i, is_stochastic ? loop.rounding.of(loop.index + i) : 0u);
    if (loop.copy != nullptr) loop.copy[i] = round_to<Copy>(updated);
  }
};

/// Calls f(copy) with the one of the two copies that `args` has, empty for none.
/// Throws: ErrorKind::bug if it has both, or one of another size than the weight.
template <class Args, class F>
void with_copy(const Args& args, const F& f) {
  const std::size_t count = args.weight.size();
  core::check(args.weight_bf16.empty() || args.weight_bf16.size() == count,
              "optimizer: the bf16 copy has the size of the weight");
  core::check(args.weight_f16.empty() || args.weight_f16.size() == count,
              "optimizer: the f16 copy has the size of the weight");
  core::check(args.weight_bf16.empty() || args.weight_f16.empty(), "optimizer: one copy at most");
  if (args.weight_f16.empty()) {
    f(args.weight_bf16);
  } else {
    f(args.weight_f16);
  }
}

/// Runs `update` over all elements of `args`.
template <bool is_stochastic, class Args, class Update, class Copy>
void launch_update(const Args& args, const Update& update, std::span<Copy> copy,
                   const Place& place) {
  const auto count = static_cast<std::int64_t>(args.weight.size());
  const UpdateLoop<Update, Copy, is_stochastic> loop{
      update, copy.empty() ? nullptr : copy.data(),
      args.rounding ? RoundingBits(*args.rounding) : RoundingBits(), args.index};
  launch(place, count, grain_elements, loop,
         Threads<UpdateElement<Update, Copy, is_stochastic>>{count, {loop}});
}

}  // namespace finetune::kernels
