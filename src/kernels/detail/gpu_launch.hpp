#pragma once
// SPDX-License-Identifier: Apache-2.0
// Starts kernels on a GPU with Kokkos. Only for files that are compiled for GPUs.

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/gpu_spaces.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

// A functor of more than 512 bytes would wait on the host for the one before it: Kokkos copies it
// to constant memory, of which there is one. As a light one it is an argument, of 4 KiB at most.
inline constexpr auto is_argument = Kokkos::Experimental::WorkItemProperty::HintLightWeight;

template <class Thread>
void start_threads(const Place& place, std::int64_t count, const Thread& thread) {
  if (count <= 0) return;
  using Range = Kokkos::RangePolicy<GpuSpace, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for(
      Kokkos::Experimental::require(Range(gpu_space(place), 0, count), is_argument), thread);
}

/// As LoneTeam, for one of num_lanes threads.
class RowTeam {
 public:
  using Policy = Kokkos::TeamPolicy<GpuSpace>;

  KOKKOS_INLINE_FUNCTION explicit RowTeam(const Policy::member_type& member)
      : member_(member),
        lane_(member.team_rank()),
        shared_(member.team_shmem().get_shmem(num_lanes * sizeof(double))) {}

  template <class F>
  KOKKOS_INLINE_FUNCTION void for_each(std::int64_t count, const F& f) const {
    for (std::int64_t i = lane_; i < count; i += num_lanes)
      f(i);
  }

  template <class Sum, class Term>
  KOKKOS_INLINE_FUNCTION Sum sum(std::int64_t count, const Term& term) const {
    Sum own = 0;
    for_each(count, [&](std::int64_t i) { own += term(i); });
    return combine(own, [](Sum a, Sum b) { return a + b; });
  }

  template <class Value>
  KOKKOS_INLINE_FUNCTION float max(std::int64_t count, const Value& value) const {
    float own = -INFINITY;
    for_each(count, [&](std::int64_t i) {
      const float candidate = value(i);
      own = candidate > own ? candidate : own;
    });
    return max_of_threads(own);
  }

  KOKKOS_INLINE_FUNCTION float max_of_threads(float own) const {
    return combine(own, [](float a, float b) { return b > a ? b : a; });
  }

  KOKKOS_INLINE_FUNCTION std::int64_t sum_of_threads(std::int64_t own) const {
    return combine(own, [](std::int64_t a, std::int64_t b) { return a + b; });
  }

  KOKKOS_INLINE_FUNCTION bool is_first() const { return lane_ == 0; }

 private:
  /// In the order of lane_sum: the second half on the first, and so on.
  template <class T, class Operation>
  KOKKOS_INLINE_FUNCTION T combine(T own, const Operation& operation) const {
    T* lanes = static_cast<T*>(shared_);
    lanes[lane_] = own;
    for (int half = num_lanes / 2; half > 0; half /= 2) {
      member_.team_barrier();
      if (lane_ < half) lanes[lane_] = operation(lanes[lane_], lanes[lane_ + half]);
    }
    member_.team_barrier();
    const T all = lanes[0];
    member_.team_barrier();
    return all;
  }

  const Policy::member_type& member_;
  int lane_;
  void* shared_;
};

template <class Row>
struct RowOfTeam {
  Row row;

  KOKKOS_INLINE_FUNCTION void operator()(const RowTeam::Policy::member_type& member) const {
    row(RowTeam(member), static_cast<std::int64_t>(member.league_rank()));
  }
};

template <class Row>
void start_teams(const Place& place, std::int64_t count, const Row& row) {
  if (count <= 0) return;
  core::check(count <= INT32_MAX, "kernels: a GPU takes 2^31 - 1 rows at once");
  RowTeam::Policy policy(gpu_space(place), static_cast<int>(count), num_lanes);
  policy.set_scratch_size(0, Kokkos::PerTeam(num_lanes * sizeof(double)));
  Kokkos::parallel_for(Kokkos::Experimental::require(policy, is_argument), RowOfTeam<Row>{row});
}

}  // namespace finetune::kernels
