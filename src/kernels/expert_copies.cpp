// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_copies.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/host_threads.hpp"

namespace finetune::kernels {
namespace {

template <class T>
float as_factor(float weight) {
  return to_float(round_to<T>(weight));
}

template <class T>
struct CopyRows {
  const T* x;
  const std::int64_t* rows;
  const float* weights;
  T* out;
  std::int64_t dim;

  void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t i = first; i < last; ++i) {
      const T* from = x + (rows != nullptr ? rows[i] : i) * dim;
      T* to = out + i * dim;
      if (weights == nullptr) {
        std::copy_n(from, dim, to);
        continue;
      }
      const float weight = as_factor<T>(weights[i]);
#pragma GCC ivdep
      for (std::int64_t j = 0; j < dim; ++j)
        to[j] = round_to<T>(to_float(from[j]) * weight);
    }
  }
};

/// A token's sums stay in registers: so many at a time.
constexpr std::int64_t chunk = 64;

template <class T>
struct AddCopies {
  const T* copies;
  const std::int64_t* places;
  const float* weights;
  T* y;
  std::int64_t dim, top_k;

  void add(std::int64_t token, std::int64_t begin, std::int64_t count, float* sums) const {
    for (std::int64_t j = token * top_k; j < (token + 1) * top_k; ++j) {
      const T* from = copies + places[j] * dim + begin;
      const float weight = weights != nullptr ? as_factor<T>(weights[j]) : 1.0f;
#pragma GCC ivdep
      for (std::int64_t c = 0; c < count; ++c)
        sums[c] += to_float(from[c]) * weight;
    }
  }

  void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t token = first; token < last; ++token) {
      for (std::int64_t begin = 0; begin < dim; begin += chunk) {
        float sums[chunk] = {};
        const std::int64_t count = std::min(chunk, dim - begin);
        count == chunk ? add(token, begin, chunk, sums) : add(token, begin, count, sums);
        for (std::int64_t c = 0; c < count; ++c)
          y[token * dim + begin + c] = round_to<T>(sums[c]);
      }
    }
  }
};

template <class T>
struct DotAndScaleRows {
  T* a;
  const T* b;
  const float* weights;
  float* dots;
  std::int64_t features;

  void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t i = first; i < last; ++i) {
      T* of_a = a + i * features;
      const T* of_b = b + i * features;
      dots[i] = lane_sum<float>(
          features, [=](std::int64_t j) { return to_float(of_a[j]) * to_float(of_b[j]); });
      const float weight = as_factor<T>(weights[i]);
#pragma GCC ivdep
      for (std::int64_t j = 0; j < features; ++j)
        of_a[j] = round_to<T>(to_float(of_a[j]) * weight);
    }
  }
};

template <class U>
const U* data_or_null(std::span<const U> values) {
  return values.empty() ? nullptr : values.data();
}

}  // namespace

template <class T>
void copy_rows(std::span<const T> x, std::int64_t dim, std::span<const std::int64_t> rows,
               std::span<const float> weights, std::span<T> out) {
  core::check(dim > 0, "copy_rows: rows have elements");
  const auto size = static_cast<std::size_t>(dim);
  const std::size_t count = out.size() / size;
  core::check(x.size() % size == 0 && out.size() % size == 0 &&
                  (rows.empty() ? x.size() == out.size() : rows.size() == count) &&
                  (weights.empty() || weights.size() == count),
              "copy_rows: x is [N, D], rows and weights [M], out [M, D]");
  launch(static_cast<std::int64_t>(count), grain_rows(dim),
         CopyRows<T>{x.data(), data_or_null(rows), data_or_null(weights), out.data(), dim});
}

template <class T>
void add_copies(std::span<const T> copies, std::int64_t dim, std::span<const std::int64_t> places,
                std::span<const float> weights, std::span<T> y) {
  if (y.empty()) return;
  core::check(dim > 0, "add_copies: rows have elements");
  const auto size = static_cast<std::size_t>(dim);
  const std::size_t tokens = y.size() / size;
  core::check(copies.size() == places.size() * size && tokens * size == y.size() &&
                  places.size() % tokens == 0 &&
                  (weights.empty() || weights.size() == places.size()),
              "add_copies: copies are [N k, D], places and weights [N, k], y is [N, D]");
  const auto top_k = static_cast<std::int64_t>(places.size() / tokens);
  launch(static_cast<std::int64_t>(tokens), grain_rows(dim * top_k),
         AddCopies<T>{copies.data(), places.data(), data_or_null(weights), y.data(), dim, top_k});
}

template <class T>
void dot_and_scale_rows(std::span<T> a, std::span<const T> b, std::span<const float> weights,
                        std::span<float> dots) {
  if (dots.empty()) return;
  core::check(a.size() == b.size() && weights.size() == dots.size() && a.size() % dots.size() == 0,
              "dot_and_scale_rows: a and b are [M, F], weights and dots [M]");
  const auto features = static_cast<std::int64_t>(a.size() / dots.size());
  launch(static_cast<std::int64_t>(dots.size()), grain_rows(features),
         DotAndScaleRows<T>{a.data(), b.data(), weights.data(), dots.data(), features});
}

#define FINETUNE_EXPERT_COPIES(T)                                                            \
  template void copy_rows(std::span<const T>, std::int64_t, std::span<const std::int64_t>,   \
                          std::span<const float>, std::span<T>);                             \
  template void add_copies(std::span<const T>, std::int64_t, std::span<const std::int64_t>,  \
                           std::span<const float>, std::span<T>);                            \
  template void dot_and_scale_rows(std::span<T>, std::span<const T>, std::span<const float>, \
                                   std::span<float>);
FINETUNE_EXPERT_COPIES(float)
FINETUNE_EXPERT_COPIES(bf16)
#undef FINETUNE_EXPERT_COPIES

}  // namespace finetune::kernels
