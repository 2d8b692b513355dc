// SPDX-License-Identifier: Apache-2.0
// A kernel as it must not be: its array is too large for registers.
#include "kernels/detail/launch.hpp"

namespace finetune::kernels {
namespace {

struct LargeArray {
  const float* x;
  float* y;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    float kept[256];
    for (int k = 0; k < 256; ++k)
      kept[k] = x[i + k];
    y[i] = kept[static_cast<int>(x[i]) & 255];
  }
};

}  // namespace

void planted(const Place& place, const float* x, float* y) {
  Threads<LargeArray>{1, {x, y}}.start(place);
}

}  // namespace finetune::kernels
