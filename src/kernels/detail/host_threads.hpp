#pragma once
// SPDX-License-Identifier: Apache-2.0
// Runs a functor over a range on torch's intra-op threads, which are the only ones of a rank.

#include <algorithm>
#include <cstdint>

#include "kernels/element.hpp"

namespace finetune::kernels {

/// Threads that run_on_threads has.
int num_host_threads();

/// Calls work(argument, first, last) for pieces that together make [0, count), concurrently.
void run_on_threads(std::int64_t count, void (*work)(const void*, std::int64_t, std::int64_t),
                    const void* argument);

/// Calls `functor(first, last)` for pieces that together make [0, count), concurrently.
///
/// A piece starts at a multiple of `grain`, whatever the number of threads, and work of a single
/// grain stays on the calling thread.
template <class Functor>
void launch(std::int64_t count, std::int64_t grain, const Functor& functor) {
  if (count <= 0) return;
  struct Range {
    const Functor& functor;
    std::int64_t count, grain;
  };
  const auto run = [](const void* argument, std::int64_t first, std::int64_t last) {
    const Range& range = *static_cast<const Range*>(argument);
    // A copy on this thread's stack: nothing else writes to it, so its members stay in registers.
    const Functor local = range.functor;
    local(first * range.grain, std::min(range.count, last * range.grain));
  };
  const Range range{functor, count, grain};
  run_on_threads((count + grain - 1) / grain, run, &range);
}

/// The grain of a launch over rows of `row_size` elements.
inline std::int64_t grain_rows(std::int64_t row_size) {
  return std::max<std::int64_t>(1, grain_elements / std::max<std::int64_t>(1, row_size));
}

}  // namespace finetune::kernels
