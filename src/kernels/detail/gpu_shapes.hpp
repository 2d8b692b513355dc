#pragma once
// SPDX-License-Identifier: Apache-2.0
// How work is cut for a GPU: a thread per index, or a team of threads per row.

#include <cstddef>
#include <cstdint>
#include <cstring>
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
  /// The sum of what each thread has; integers, as threads of another number have other parts.
  std::int64_t sum_of_threads(std::int64_t own) const { return own; }
  /// The largest of what each thread has, none of it NaN.
  float max_of_threads(float own) const { return own; }
  /// Whether this thread writes what there is one of.
  bool is_first() const { return true; }
};

// Threads of all teams may do these to one number at the same time. What becomes of it has no
// order.

KOKKOS_INLINE_FUNCTION void add_for_all(std::int64_t* sum, std::int64_t term) {
#ifdef FINETUNE_FOR_GPUS
  Kokkos::atomic_add(sum, term);
#else
  *sum += term;
#endif
}
/// *least = min(*least, value).
KOKKOS_INLINE_FUNCTION void lower_for_all(std::uint64_t* least, std::uint64_t value) {
#ifdef FINETUNE_FOR_GPUS
  Kokkos::atomic_min(least, value);
#else
  *least = value < *least ? value : *least;
#endif
}

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

/// Neighbours that a GPU reads and writes by one instruction, of 16 bytes. Sums over rows have
/// none: their terms are the host's, in its order.
template <class T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T at[size];
};

/// `from` is at a multiple of 16 bytes.
template <class T>
KOKKOS_INLINE_FUNCTION Pack<T> load_pack(const T* from) {
#ifdef FINETUNE_FOR_GPUS
  return *reinterpret_cast<const Pack<T>*>(from);
#else
  Pack<T> pack;
  std::memcpy(&pack, from, sizeof pack);
  return pack;
#endif
}
template <class T>
KOKKOS_INLINE_FUNCTION void store_pack(T* to, const Pack<T>& pack) {
#ifdef FINETUNE_FOR_GPUS
  *reinterpret_cast<Pack<T>*>(to) = pack;
#else
  std::memcpy(to, &pack, sizeof pack);
#endif
}

/// Whether `count` neighbours are whole packs, and all of these addresses at multiples of 16 bytes.
template <class T, class... Address>
bool are_packs(std::int64_t count, const Address*... addresses) {
  const auto is_aligned = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % alignof(Pack<T>) == 0;
  };
  return count % Pack<T>::size == 0 && (is_aligned(addresses) && ...);
}

/// A functor over pieces, called for pieces of one.
template <class Pieces>
struct OfOne {
  Pieces pieces;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const { pieces(i, i + 1); }
};

}  // namespace finetune::kernels
