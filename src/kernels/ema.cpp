// SPDX-License-Identifier: Apache-2.0
#include "kernels/ema.hpp"

#include <iterator>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"

namespace finetune::kernels {
namespace {

template <class Weight>
struct MoveMean {
  float* mean;
  const Weight* weight;
  float rate;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
#pragma GCC ivdep
    for (std::int64_t i = first; i < last; ++i)
      mean[i] = moved(mean[i], to_float(weight[i]));
  }

  // The difference is rounded, so from + (to - from) need not be `to`.
  KOKKOS_FORCEINLINE_FUNCTION float moved(float from, float to) const {
    return rate == 1.0f ? to : from + rate * (to - from);
  }
};

}  // namespace

template <class Weight>
void move_mean(std::span<float> mean, std::span<const Weight> weight, float rate,
               const Place& place) {
  core::check(mean.size() == weight.size(), "ema: mean and weight have the same size");
  launch(place, std::ssize(mean), grain_elements,
         MoveMean<Weight>{mean.data(), weight.data(), rate});
}

template void move_mean(std::span<float>, std::span<const float>, float, const Place&);
template void move_mean(std::span<float>, std::span<const bf16>, float, const Place&);

}  // namespace finetune::kernels
