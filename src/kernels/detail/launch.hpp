#pragma once
// SPDX-License-Identifier: Apache-2.0
// Runs a kernel where its memory is: on torch's intra-op threads, or on a GPU.

#include <cstdint>

#include "kernels/detail/functions.hpp"
#include "kernels/detail/gpu_shapes.hpp"
#include "kernels/detail/host_threads.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

/// On the host as launch(count, grain, functor); on a GPU what `gpu_shape` (Threads or Teams) says,
/// and then the call returns before the work is done.
template <class Functor, class Shape>
void launch(const Place& place, std::int64_t count, std::int64_t grain, const Functor& functor,
            const Shape& gpu_shape) {
  if (place.is_gpu()) return gpu_shape.start(place);
  launch(count, grain, functor);
}

/// On a GPU, a thread per index.
template <class Functor>
void launch(const Place& place, std::int64_t count, std::int64_t grain, const Functor& functor) {
  launch(place, count, grain, functor, Threads<OfOne<Functor>>{count, {functor}});
}

}  // namespace finetune::kernels
