// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.hpp"

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"

namespace finetune::kernels {
namespace {

/// What is known of the rows afterwards.
struct Results {
  float* losses;
  bool* hits;  // or null

  KOKKOS_FORCEINLINE_FUNCTION void set(std::int64_t n, float loss, bool is_hit) const {
    losses[n] = loss;
    if (hits != nullptr) hits[n] = is_hit;
  }
};

struct RowStatistics {
  float largest, sum;  // sum of exp(logit - largest)
};

template <class T>
KOKKOS_INLINE_FUNCTION RowStatistics statistics(const T* row, std::int64_t vocabulary) {
  const float largest = lane_max(vocabulary, [=](std::int64_t v) { return to_float(row[v]); });
  const float sum = lane_sum<float>(
      vocabulary, [=](std::int64_t v) { return exp_bounded(to_float(row[v]) - largest); });
  return {largest, sum};
}

// Only a target that holds the largest logit needs the look at those before it.
template <class T>
KOKKOS_INLINE_FUNCTION bool is_first_largest(const T* row, std::int64_t target, float largest) {
  if (to_float(row[target]) != largest) return false;
  for (std::int64_t v = 0; v < target; ++v) {
    if (to_float(row[v]) == largest) return false;
  }
  return true;
}

template <class T>
KOKKOS_INLINE_FUNCTION void set_result(const T* row, std::int64_t target,
                                       const RowStatistics& statistics, const Results& results,
                                       std::int64_t n) {
  const float below = statistics.largest - to_float(row[target]);
  results.set(n, below + std::log(statistics.sum),
              is_first_largest(row, target, statistics.largest));
}

template <class T>
struct Loss {
  const T* logits;
  const std::int64_t* targets;
  Results results;
  std::int64_t vocabulary;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t n = first; n < last; ++n) {
      if (targets[n] == ignored_target) {
        results.set(n, 0.0f, true);
        continue;
      }
      const T* row = logits + n * vocabulary;
      set_result(row, targets[n], statistics(row, vocabulary), results, n);
    }
  }
};

template <class T>
struct LossAndGradient {
  T* logits;
  const std::int64_t* targets;
  Results results;
  std::int64_t vocabulary;
  const float* scales;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t n = first; n < last; ++n) {
      T* row = logits + n * vocabulary;
      if (targets[n] == ignored_target) {
        results.set(n, 0.0f, true);
        for (std::int64_t v = 0; v < vocabulary; ++v)
          row[v] = T{0};
        continue;
      }
      const RowStatistics row_statistics = statistics<T>(row, vocabulary);
      set_result<T>(row, targets[n], row_statistics, results, n);
      write_gradient(row, targets[n], row_statistics, scales[n]);
    }
  }

  KOKKOS_INLINE_FUNCTION void write_gradient(T* row, std::int64_t target,
                                             const RowStatistics& statistics, float scale) const {
    const float largest = statistics.largest, inverse = 1.0f / statistics.sum;
    const float factor = inverse * scale;
    const float probability = exp_bounded(to_float(row[target]) - largest) * inverse;
#pragma GCC ivdep
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      row[v] = round_to<T>(exp_bounded(to_float(row[v]) - largest) * factor);
    }
    row[target] = round_to<T>((probability - 1.0f) * scale);
  }
};

/// A row by a team. The target's logit is read before the sums are there, and the gradient is
/// written afterwards.
template <class T>
struct LossRow {
  T* logits;
  const std::int64_t* targets;
  Results results;
  std::int64_t vocabulary;
  const float* scales;  // or null: no gradient

  template <class Team>
  KOKKOS_INLINE_FUNCTION void operator()(const Team& team, std::int64_t n) const {
    T* row = logits + n * vocabulary;
    const std::int64_t target = targets[n];
    if (target == ignored_target) {
      if (team.is_first()) results.set(n, 0.0f, true);
      if (scales != nullptr) team.for_each(vocabulary, [=](std::int64_t v) { row[v] = T{0}; });
      return;
    }
    const float logit = to_float(row[target]);
    const float largest = team.max(vocabulary, [=](std::int64_t v) { return to_float(row[v]); });
    const float sum = team.template sum<float>(
        vocabulary, [=](std::int64_t v) { return exp_bounded(to_float(row[v]) - largest); });
    const bool is_hit = is_first(team, row, target, logit, largest);
    if (team.is_first()) results.set(n, (largest - logit) + std::log(sum), is_hit);
    if (scales == nullptr) return;
    const float inverse = 1.0f / sum, scale = scales[n], factor = inverse * scale;
    team.for_each(vocabulary, [=](std::int64_t v) {
      const float power = exp_bounded(to_float(row[v]) - largest);
      row[v] = round_to<T>(v == target ? (power * inverse - 1.0f) * scale : power * factor);
    });
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION bool is_first(const Team& team, const T* row, std::int64_t target,
                                       float logit, float largest) const {
    if (logit != largest) return false;
    return team.max(target, [=](std::int64_t v) {
      return to_float(row[v]) == largest ? 1.0f : 0.0f;
    }) <= 0.0f;
  }
};

std::int64_t check_arguments(std::size_t num_logits, std::span<const std::int64_t> targets,
                             std::span<const float> losses, std::span<const bool> hits,
                             const Place& place) {
  core::check(hits.empty() || hits.size() == targets.size(), "cross_entropy: hits is [N]");
  core::check(losses.size() == targets.size(), "cross_entropy: losses is [N]");
  if (targets.empty()) {
    core::check(num_logits == 0, "cross_entropy: logits is [N, V], targets [N]");
    return 1;
  }
  core::check(num_logits % targets.size() == 0 && num_logits > 0,
              "cross_entropy: logits is [N, V], targets [N]");
  const auto vocabulary = static_cast<std::int64_t>(num_logits / targets.size());
  if (place.is_gpu()) return vocabulary;
  bool inside = true;
  for (const std::int64_t target : targets) {
    inside &= target == ignored_target || (target >= 0 && target < vocabulary);
  }
  core::check(inside, "cross_entropy: every target lies in the vocabulary");
  return vocabulary;
}

Results results_in(std::span<float> losses, std::span<bool> hits) {
  return {losses.data(), hits.empty() ? nullptr : hits.data()};
}

}  // namespace

template <class T>
void cross_entropy(std::span<const T> logits, std::span<const std::int64_t> targets,
                   std::span<float> losses, std::span<bool> hits, const Place& place) {
  const std::int64_t vocabulary = check_arguments(logits.size(), targets, losses, hits, place);
  const Results results = results_in(losses, hits);
  const auto rows = static_cast<std::int64_t>(targets.size());
  // Without scales nothing is written to the logits.
  launch(place, rows, grain_rows(vocabulary),
         Loss<T>{logits.data(), targets.data(), results, vocabulary},
         Teams<LossRow<T>>{
             rows, {const_cast<T*>(logits.data()), targets.data(), results, vocabulary, nullptr}});
}

template <class T>
void cross_entropy_with_gradient(std::span<T> logits, std::span<const std::int64_t> targets,
                                 std::span<const float> scales, std::span<float> losses,
                                 std::span<bool> hits, const Place& place) {
  const std::int64_t vocabulary = check_arguments(logits.size(), targets, losses, hits, place);
  core::check(scales.size() == targets.size(), "cross_entropy: scales is [N]");
  const Results results = results_in(losses, hits);
  const auto rows = static_cast<std::int64_t>(targets.size());
  launch(
      place, rows, grain_rows(vocabulary),
      LossAndGradient<T>{logits.data(), targets.data(), results, vocabulary, scales.data()},
      Teams<LossRow<T>>{rows, {logits.data(), targets.data(), results, vocabulary, scales.data()}});
}

template void cross_entropy(std::span<const float>, std::span<const std::int64_t>, std::span<float>,
                            std::span<bool>, const Place&);
template void cross_entropy(std::span<const bf16>, std::span<const std::int64_t>, std::span<float>,
                            std::span<bool>, const Place&);
template void cross_entropy_with_gradient(std::span<float>, std::span<const std::int64_t>,
                                          std::span<const float>, std::span<float>, std::span<bool>,
                                          const Place&);
template void cross_entropy_with_gradient(std::span<bf16>, std::span<const std::int64_t>,
                                          std::span<const float>, std::span<float>, std::span<bool>,
                                          const Place&);

}  // namespace finetune::kernels
