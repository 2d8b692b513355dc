// SPDX-License-Identifier: Apache-2.0
#include "kernels/swiglu.hpp"

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"

namespace finetune::kernels {
namespace {

template <class T>
struct Forward {
  const T* gate_up;
  T* y;
  std::int64_t features;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t row = first; row < last; ++row) {
      const T *gate = gate_up + row * 2 * features, *up = gate + features;
      T* out = y + row * features;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < features; ++j) {
        const float g = to_float(gate[j]);
        out[j] = round_to<T>(g * sigmoid(g) * to_float(up[j]));
      }
    }
  }
};

template <class T>
struct Backward {
  const T *dy, *gate_up;
  T* d_gate_up;
  std::int64_t features;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t row = first; row < last; ++row) {
      const T *gate = gate_up + row * 2 * features, *up = gate + features;
      const T* dy_row = dy + row * features;
      T *d_gate = d_gate_up + row * 2 * features, *d_up = d_gate + features;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < features; ++j) {
        const float g = to_float(gate[j]), u = to_float(up[j]), d = to_float(dy_row[j]);
        const float s = sigmoid(g), silu = g * s;
        d_gate[j] = round_to<T>(d * u * (s + silu * (1.0f - s)));
        d_up[j] = round_to<T>(d * silu);
      }
    }
  }
};

/// An element each: neighbouring threads have neighbouring elements.
template <class T>
struct ForwardElement {
  const T* gate_up;
  T* y;
  std::int64_t features;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const T* gate = gate_up + i / features * 2 * features + i % features;
    const float g = to_float(gate[0]);
    y[i] = round_to<T>(g * sigmoid(g) * to_float(gate[features]));
  }
};

template <class T>
struct BackwardElement {
  const T *dy, *gate_up;
  T* d_gate_up;
  std::int64_t features;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t at = i / features * 2 * features + i % features;
    const float g = to_float(gate_up[at]), u = to_float(gate_up[at + features]);
    const float d = to_float(dy[i]), s = sigmoid(g), silu = g * s;
    d_gate_up[at] = round_to<T>(d * u * (s + silu * (1.0f - s)));
    d_gate_up[at + features] = round_to<T>(d * silu);
  }
};

std::int64_t check_sizes(std::size_t pairs, std::size_t single, std::int64_t features) {
  core::check(
      features > 0 && static_cast<std::int64_t>(single) % features == 0 && pairs == 2 * single,
      "swiglu: gate_up is [N, 2F], its product [N, F]");
  return static_cast<std::int64_t>(single) / features;
}

}  // namespace

template <class T>
void swiglu(std::span<const T> gate_up, std::int64_t features, std::span<T> y, const Place& place) {
  const std::int64_t rows = check_sizes(gate_up.size(), y.size(), features);
  launch(place, rows, grain_rows(2 * features), Forward<T>{gate_up.data(), y.data(), features},
         Threads<ForwardElement<T>>{rows * features, {gate_up.data(), y.data(), features}});
}

template <class T>
void swiglu_backward(std::span<const T> dy, std::span<const T> gate_up, std::int64_t features,
                     std::span<T> d_gate_up, const Place& place) {
  const std::int64_t rows = check_sizes(gate_up.size(), dy.size(), features);
  core::check(d_gate_up.size() == gate_up.size(), "swiglu_backward: d_gate_up is [N, 2F]");
  launch(place, rows, grain_rows(2 * features),
         Backward<T>{dy.data(), gate_up.data(), d_gate_up.data(), features},
         Threads<BackwardElement<T>>{rows * features,
                                     {dy.data(), gate_up.data(), d_gate_up.data(), features}});
}

template void swiglu(std::span<const float>, std::int64_t, std::span<float>, const Place&);
template void swiglu(std::span<const bf16>, std::int64_t, std::span<bf16>, const Place&);
template void swiglu_backward(std::span<const float>, std::span<const float>, std::int64_t,
                              std::span<float>, const Place&);
template void swiglu_backward(std::span<const bf16>, std::span<const bf16>, std::int64_t,
                              std::span<bf16>, const Place&);

}  // namespace finetune::kernels
