#pragma once
// SPDX-License-Identifier: Apache-2.0
// The step of AdamW with 8-bit moments as the threads of a GPU take it, and its arithmetic.

#include <cmath>
#include <cstdint>

#include "kernels/adamw8bit.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/moment_table.hpp"
#include "kernels/detail/rounding_bits.hpp"

namespace finetune::kernels::of_8_bits {

struct Coefficients {
  float gradient_scale, lerp1, beta2, rest2, root_correction2, epsilon, step_size;

  KOKKOS_FORCEINLINE_FUNCTION float first(float before, float gradient) const {
    return before + lerp1 * (gradient - before);
  }
  KOKKOS_FORCEINLINE_FUNCTION float second(float before, float gradient) const {
    return before * beta2 + rest2 * gradient * gradient;
  }
  KOKKOS_FORCEINLINE_FUNCTION float weight(float before, float keep, float m, float v) const {
    const float denominator = std::sqrt(v) / root_correction2 + epsilon;
    return before * keep - step_size * m / denominator;
  }
};

/// What weights of a run are multiplied by first.
KOKKOS_FORCEINLINE_FUNCTION float kept_part(double lr, double weight_decay) {
  return static_cast<float>(1.0 - lr * weight_decay);
}

/// The scale of a block, and 1 / scale, or 0 for a block that becomes zero.
struct Scale {
  float scale, reciprocal;

  static KOKKOS_FORCEINLINE_FUNCTION Scale from(float largest) {
    const bool is_zero = !(largest >= 0x1p-126f);
    return {is_zero ? 0.0f : largest, is_zero ? 0.0f : 1.0f / largest};
  }
};

/// The first run of `runs` that ends behind `begin`; `end_of(run)` is where one ends.
template <class EndOf>
KOKKOS_INLINE_FUNCTION std::int64_t first_run(std::int64_t num_runs, std::int64_t begin,
                                              const EndOf& end_of) {
  std::int64_t low = 0, high = num_runs;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (end_of(middle) <= begin) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// A block by a team. The moments are computed twice, to find the largest and to store them: so no
/// thread keeps any, and what is read again is in the cache.
template <class Weight, class Copy, bool is_stochastic>
struct StepOfTeam {
  const MomentTable *table1, *table2;
  Weight* weight;
  std::uint8_t *exp_avg, *exp_avg_sq;
  float *scale1, *scale2;
  const float* gradient;
  Copy* copy;  // or null
  const DecayRun* runs;
  std::int64_t num_runs, count;
  double lr;
  Coefficients by;
  RoundingBits rounding;

  /// Moments before the step in units of these.
  struct Units {
    float first, second;
  };

  KOKKOS_FORCEINLINE_FUNCTION float first(std::int64_t i, float g, const Units& units) const {
    return by.first(table1->by_code[exp_avg[i]] * units.first, g);
  }
  KOKKOS_FORCEINLINE_FUNCTION float second(std::int64_t i, float g, const Units& units) const {
    return by.second(table2->by_code[exp_avg_sq[i]] * units.second, g);
  }

  /// The run with element i, not before run `from`; null if there is none.
  KOKKOS_INLINE_FUNCTION const DecayRun* run_of(std::int64_t i, std::int64_t from) const {
    for (std::int64_t run = from; run < num_runs && runs[run].first <= i; ++run)
      if (i < runs[run].first + runs[run].count) return runs + run;
    return nullptr;
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void operator()(const Team& team, std::int64_t block) const {
    const std::int64_t begin = block * moment_block, left = count - begin;
    const std::int64_t length = left < moment_block ? left : moment_block;
    const std::int64_t from = first_run(
        num_runs, begin, [&](std::int64_t run) { return runs[run].first + runs[run].count; });
    const Units units{scale1[block], scale2[block]};
    float largest1 = 0, largest2 = 0;
    team.for_each(length, [&](std::int64_t k) {
      const std::int64_t i = begin + k;
      if (run_of(i, from) == nullptr) return;
      const float g = gradient[i] * by.gradient_scale;
      const float m = std::abs(first(i, g, units)), v = std::abs(second(i, g, units));
      largest1 = m > largest1 ? m : largest1;
      largest2 = v > largest2 ? v : largest2;
    });
    const Scale by1 = Scale::from(team.max_of_threads(largest1));
    const Scale by2 = Scale::from(team.max_of_threads(largest2));
    team.for_each(length, [&](std::int64_t k) {
      const std::int64_t i = begin + k;
      const DecayRun* run = run_of(i, from);
      float m = 0, v = 0;
      if (run != nullptr) {
        const float g = gradient[i] * by.gradient_scale;
        m = first(i, g, units);
        v = second(i, g, units);
        store_weight(i, *run, m, v);
      }
      exp_avg[i] = table1->first_code(m * by1.reciprocal);
      exp_avg_sq[i] = table2->second_code(v * by2.reciprocal);
    });
    if (!team.is_first()) return;
    scale1[block] = by1.scale;
    scale2[block] = by2.scale;
  }

  KOKKOS_FORCEINLINE_FUNCTION void store_weight(std::int64_t i, const DecayRun& run, float m,
                                                float v) const {
    float updated = by.weight(to_float(weight[i]), kept_part(lr, run.weight_decay), m, v);
    const std::uint32_t random = is_stochastic ? rounding.of(run.index + (i - run.first)) : 0u;
    weight[i] = stored_as<Weight, is_stochastic>(updated, bits_for_weight(random));
    if (is_stochastic) updated = to_float(weight[i]);
    if (copy != nullptr) copy[i] = round_to<Copy>(updated);
  }
};

}  // namespace finetune::kernels::of_8_bits
