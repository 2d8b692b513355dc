// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.hpp"

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"

namespace finetune::kernels {
namespace {

struct RowResult {
  float loss;
  bool trained, correct;
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
KOKKOS_INLINE_FUNCTION RowResult row_result(const T* row, std::int64_t target,
                                            const RowStatistics& statistics) {
  const float below = statistics.largest - to_float(row[target]);
  return {below + std::log(statistics.sum), true,
          is_first_largest(row, target, statistics.largest)};
}

template <class T>
struct Loss {
  const T* logits;
  const std::int64_t* targets;
  RowResult* results;
  std::int64_t vocabulary;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t n = first; n < last; ++n) {
      results[n] = {0.0f, false, false};
      if (targets[n] == ignored_target) continue;
      const T* row = logits + n * vocabulary;
      results[n] = row_result(row, targets[n], statistics(row, vocabulary));
    }
  }
};

template <class T>
struct LossAndGradient {
  T* logits;
  const std::int64_t* targets;
  RowResult* results;
  std::int64_t vocabulary;
  const float* scales;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t n = first; n < last; ++n) {
      T* row = logits + n * vocabulary;
      if (targets[n] == ignored_target) {
        results[n] = {0.0f, false, false};
        for (std::int64_t v = 0; v < vocabulary; ++v)
          row[v] = T{0};
        continue;
      }
      const RowStatistics row_statistics = statistics<T>(row, vocabulary);
      results[n] = row_result<T>(row, targets[n], row_statistics);
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

std::int64_t check_arguments(std::size_t num_logits, std::span<const std::int64_t> targets,
                             std::span<const float> losses, std::span<const bool> hits) {
  core::check(hits.empty() || hits.size() == targets.size(), "cross_entropy: hits is [N]");
  core::check(losses.size() == targets.size(), "cross_entropy: losses is [N]");
  if (targets.empty()) {
    core::check(num_logits == 0, "cross_entropy: logits is [N, V], targets [N]");
    return 1;
  }
  core::check(num_logits % targets.size() == 0 && num_logits > 0,
              "cross_entropy: logits is [N, V], targets [N]");
  const auto vocabulary = static_cast<std::int64_t>(num_logits / targets.size());
  if (on_device()) return vocabulary;
  bool inside = true;
  for (const std::int64_t target : targets) {
    inside &= target == ignored_target || (target >= 0 && target < vocabulary);
  }
  core::check(inside, "cross_entropy: every target lies in the vocabulary");
  return vocabulary;
}

void copy_rows(std::span<const RowResult> results, std::span<float> losses, std::span<bool> hits) {
  for (std::size_t n = 0; n < losses.size(); ++n)
    losses[n] = results[n].loss;
  for (std::size_t n = 0; n < hits.size(); ++n)
    hits[n] = results[n].correct || !results[n].trained;
}

}  // namespace

template <class T>
void cross_entropy(std::span<const T> logits, std::span<const std::int64_t> targets,
                   std::span<float> losses, std::span<bool> hits) {
  const std::int64_t vocabulary = check_arguments(logits.size(), targets, losses, hits);
  const auto rows = static_cast<std::int64_t>(targets.size());
  const Scratch<RowResult> results(rows);
  launch(0, rows, grain_rows(vocabulary),
         Loss<T>{logits.data(), targets.data(), results.data(), vocabulary});
  copy_rows({results.wait(), targets.size()}, losses, hits);
}

template <class T>
void cross_entropy_with_gradient(std::span<T> logits, std::span<const std::int64_t> targets,
                                 std::span<const float> scales, std::span<float> losses,
                                 std::span<bool> hits) {
  const std::int64_t vocabulary = check_arguments(logits.size(), targets, losses, hits);
  core::check(scales.size() == targets.size(), "cross_entropy: scales is [N]");
  const auto rows = static_cast<std::int64_t>(targets.size());
  const Scratch<RowResult> results(rows);
  launch(
      0, rows, grain_rows(vocabulary),
      LossAndGradient<T>{logits.data(), targets.data(), results.data(), vocabulary, scales.data()});
  copy_rows({results.wait(), targets.size()}, losses, hits);
}

template void cross_entropy(std::span<const float>, std::span<const std::int64_t>, std::span<float>,
                            std::span<bool>);
template void cross_entropy(std::span<const bf16>, std::span<const std::int64_t>, std::span<float>,
                            std::span<bool>);
template void cross_entropy_with_gradient(std::span<float>, std::span<const std::int64_t>,
                                          std::span<const float>, std::span<float>,
                                          std::span<bool>);
template void cross_entropy_with_gradient(std::span<bf16>, std::span<const std::int64_t>,
                                          std::span<const float>, std::span<float>,
                                          std::span<bool>);

}  // namespace finetune::kernels
