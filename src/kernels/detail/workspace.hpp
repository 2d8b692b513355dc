#pragma once
// SPDX-License-Identifier: Apache-2.0
// Of layers that remember: a thread's memory, and functions of a head's vectors.

#include <cmath>
#include <cstdint>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/scratch.hpp"

namespace finetune::kernels {

inline constexpr std::int64_t vector_lanes = 16;

/// Takes pieces of one block.
class Workspace {
 public:
  explicit Workspace(std::int64_t size) : block_(size), size_(size) {}
  float* take(std::int64_t count) {
    float* piece = block_.data() + taken_;
    taken_ += count;
    core::check(taken_ <= size_, "kernels: the memory of a head's thread is planned");
    return piece;
  }
  /// What was taken is taken again.
  void start_over() { taken_ = 0; }

 private:
  Scratch<float> block_;
  std::int64_t size_;
  std::int64_t taken_ = 0;
};

/// Sum of a[i] * b[i], in lanes of our own. `count`: a multiple of vector_lanes.
inline float dot(const float* a, const float* b, std::int64_t count) {
  float lanes[vector_lanes] = {};
  for (std::int64_t i = 0; i < count; i += vector_lanes)
    for (std::int64_t lane = 0; lane < vector_lanes; ++lane)
      lanes[lane] += a[i + lane] * b[i + lane];
  for (std::int64_t half = vector_lanes / 2; half > 0; half /= 2)
    for (std::int64_t lane = 0; lane < half; ++lane)
      lanes[lane] += lanes[lane + half];
  return lanes[0];
}

inline float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

inline float silu_slope(float x) {
  const float open = sigmoid(x);
  return open * (1.0f + x * (1.0f - open));
}

}  // namespace finetune::kernels
