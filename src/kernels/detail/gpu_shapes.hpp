#pragma once
// SPDX-License-Identifier: Apache-2.0
// How work is cut for a GPU: a thread per index, or a team of threads per row.

#include <cstddef>
#include <cstdint>
#include <typeinfo>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/functions.hpp"
#include "kernels/place.hpp"

#ifdef FINETUNE_FOR_GPUS
#include "kernels/detail/gpu_launch.hpp"
#endif

namespace finetune::kernels {

/// What the threads of a team do with a row, seen by one of them; this one is a team of one, with
/// which tests run what is written for GPUs. All threads of a team call the same of these, in the
/// same order. Sums are associated as lane_sum does it, so that they are the host's.
class LoneTeam {
 public:
  /// f(i) for each i below `count`; a thread has the same ones every time.
  template <class F>
  void for_each(std::int64_t count, const F& f) const {
    for (std::int64_t i = 0; i < count; ++i)
      f(i);
  }
  /// Their sum and their largest for the whole team, which has also seen what was written before.
  template <class Sum, class Term>
  Sum sum(std::int64_t count, const Term& term) const {
    return lane_sum<Sum>(count, term);
  }
  template <class Value>
  float max(std::int64_t count, const Value& value) const {
    return lane_max(count, value);
  }
  /// Whether this thread writes what there is one of.
  bool is_first() const { return true; }
};

#ifdef FINETUNE_GPU_SHAPES_ON_HOST
/// Of tests, before a kernel runs on the host in a GPU's place: `arguments` are a copy of its
/// functor, in which addresses may be exchanged for those where the host finds the same memory.
void before_kernel(const std::type_info& functor, void* arguments, std::size_t bytes);

template <class Functor>
Functor for_host(Functor functor) {
  before_kernel(typeid(Functor), &functor, sizeof functor);
  return functor;
}
#endif

/// `thread(i)` for each i in [0, count).
template <class Thread>
struct Threads {
  std::int64_t count;
  Thread thread;

  void start([[maybe_unused]] const Place& place) const {
#if defined(FINETUNE_FOR_GPUS)
    start_threads(place, count, thread);
#elif defined(FINETUNE_GPU_SHAPES_ON_HOST)
    if (count <= 0) return;
    const Thread own = for_host(thread);
    for (std::int64_t i = 0; i < count; ++i)
      own(i);
#else
    core::check(false, "kernels: this build has none for GPUs");
#endif
  }
};

/// `row(team, i)` for each i in [0, count), by a team of num_lanes threads each.
template <class Row>
struct Teams {
  std::int64_t count;
  Row row;

  void start([[maybe_unused]] const Place& place) const {
#if defined(FINETUNE_FOR_GPUS)
    start_teams(place, count, row);
#elif defined(FINETUNE_GPU_SHAPES_ON_HOST)
    if (count <= 0) return;
    const Row own = for_host(row);
    for (std::int64_t i = 0; i < count; ++i)
      own(LoneTeam(), i);
#else
    core::check(false, "kernels: this build has none for GPUs");
#endif
  }
};

/// A functor over pieces, called for pieces of one.
template <class Pieces>
struct OfOne {
  Pieces pieces;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const { pieces(i, i + 1); }
};

}  // namespace finetune::kernels
