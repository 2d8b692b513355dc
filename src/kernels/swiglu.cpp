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

template <class T>
KOKKOS_INLINE_FUNCTION T product_of(T gate, T up) {
  const float g = to_float(gate);
  return round_to<T>(g * sigmoid(g) * to_float(up));
}

/// Writes the gradients in the place of gate and up.
template <class T>
KOKKOS_INLINE_FUNCTION void differentiate(T dy, T& gate, T& up) {
  const float g = to_float(gate), u = to_float(up), d = to_float(dy);
  const float s = sigmoid(g), silu = g * s;
  gate = round_to<T>(d * u * (s + silu * (1.0f - s)));
  up = round_to<T>(d * silu);
}

/// An element each: neighbouring threads have neighbouring elements.
template <class T>
struct ForwardElement {
  const T* gate_up;
  T* y;
  std::int64_t features;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const T* gate = gate_up + i / features * 2 * features + i % features;
    y[i] = product_of(gate[0], gate[features]);
  }
};

template <class T>
struct BackwardElement {
  const T *dy, *gate_up;
  T* d_gate_up;
  std::int64_t features;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t at = i / features * 2 * features + i % features;
    T gate = gate_up[at], up = gate_up[at + features];
    differentiate(dy[i], gate, up);
    d_gate_up[at] = gate;
    d_gate_up[at + features] = up;
  }
};

/// The same of a pack each.
template <class T>
struct ForwardPack {
  ForwardElement<T> by;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t first = i * Pack<T>::size;
    const T* gate = by.gate_up + first / by.features * 2 * by.features + first % by.features;
    const Pack<T> up = load_pack(gate + by.features);
    Pack<T> values = load_pack(gate);
    for (int k = 0; k < Pack<T>::size; ++k)
      values.at[k] = product_of(values.at[k], up.at[k]);
    store_pack(by.y + first, values);
  }
};

template <class T>
struct BackwardPack {
  BackwardElement<T> by;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t first = i * Pack<T>::size;
    const std::int64_t at = first / by.features * 2 * by.features + first % by.features;
    const Pack<T> dy = load_pack(by.dy + first);
    Pack<T> gate = load_pack(by.gate_up + at), up = load_pack(by.gate_up + at + by.features);
    for (int k = 0; k < Pack<T>::size; ++k)
      differentiate(dy.at[k], gate.at[k], up.at[k]);
    store_pack(by.d_gate_up + at, gate);
    store_pack(by.d_gate_up + at + by.features, up);
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
  const Forward<T> forward{gate_up.data(), y.data(), features};
  const ForwardElement<T> element{gate_up.data(), y.data(), features};
  const std::int64_t grain = grain_rows(2 * features), count = rows * features;
  if (are_packs<T>(features, gate_up.data(), y.data()))
    launch(place, rows, grain, forward, Threads<ForwardPack<T>>{count / Pack<T>::size, {element}});
  else
    launch(place, rows, grain, forward, Threads<ForwardElement<T>>{count, element});
}

template <class T>
void swiglu_backward(std::span<const T> dy, std::span<const T> gate_up, std::int64_t features,
                     std::span<T> d_gate_up, const Place& place) {
  const std::int64_t rows = check_sizes(gate_up.size(), dy.size(), features);
  core::check(d_gate_up.size() == gate_up.size(), "swiglu_backward: d_gate_up is [N, 2F]");
  const Backward<T> backward{dy.data(), gate_up.data(), d_gate_up.data(), features};
  const BackwardElement<T> element{dy.data(), gate_up.data(), d_gate_up.data(), features};
  const std::int64_t grain = grain_rows(2 * features), count = rows * features;
  if (are_packs<T>(features, dy.data(), gate_up.data(), d_gate_up.data()))
    launch(place, rows, grain, backward,
           Threads<BackwardPack<T>>{count / Pack<T>::size, {element}});
  else
    launch(place, rows, grain, backward, Threads<BackwardElement<T>>{count, element});
}

template void swiglu(std::span<const float>, std::int64_t, std::span<float>, const Place&);
template void swiglu(std::span<const bf16>, std::int64_t, std::span<bf16>, const Place&);
template void swiglu_backward(std::span<const float>, std::span<const float>, std::int64_t,
                              std::span<float>, const Place&);
template void swiglu_backward(std::span<const bf16>, std::span<const bf16>, std::int64_t,
                              std::span<bf16>, const Place&);

}  // namespace finetune::kernels
