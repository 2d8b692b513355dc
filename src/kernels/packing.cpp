// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing.hpp"

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/host_threads.hpp"

namespace finetune::kernels {
namespace {

template <class In, class Out>
struct Convert {
  const In* source;
  Out* target;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
#pragma GCC ivdep
    for (std::int64_t i = first; i < last; ++i)
      target[i] = round_to<Out>(to_float(source[i]));
  }
};

template <class T>
struct StartSum {
  const T* terms;
  float* sum;

  void operator()(std::int64_t first, std::int64_t last) const {
#pragma GCC ivdep
    for (std::int64_t i = first; i < last; ++i)
      sum[i] = 0.0f + to_float(terms[i]);
  }
};

template <class T>
struct Add {
  const T* terms;
  float* sum;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
#pragma GCC ivdep
    for (std::int64_t i = first; i < last; ++i)
      sum[i] += to_float(terms[i]);
  }
};

}  // namespace

template <class In, class Out>
void narrow(std::span<const In> source, std::span<Out> target) {
  core::check(source.size() == target.size(), "packing: both spans have the same size");
  launch(static_cast<std::int64_t>(target.size()), grain_elements,
         Convert<In, Out>{source.data(), target.data()});
}

template <class T>
void add(std::span<const T> terms, std::span<float> sum) {
  core::check(terms.size() == sum.size(), "packing: both spans have the same size");
  launch(static_cast<std::int64_t>(sum.size()), grain_elements, Add<T>{terms.data(), sum.data()});
}

template <class T>
void start_sum(std::span<const T> terms, std::span<float> sum) {
  core::check(terms.size() == sum.size(), "packing: both spans have the same size");
  launch(static_cast<std::int64_t>(sum.size()), grain_elements,
         StartSum<T>{terms.data(), sum.data()});
}

template <class T>
void widen(std::span<const T> source, std::span<float> target) {
  narrow(source, target);
}

template void narrow(std::span<const float>, std::span<float>);
template void narrow(std::span<const float>, std::span<bf16>);
template void narrow(std::span<const float>, std::span<f16>);
template void narrow(std::span<const bf16>, std::span<float>);
template void narrow(std::span<const bf16>, std::span<bf16>);
template void narrow(std::span<const bf16>, std::span<f16>);
template void narrow(std::span<const f16>, std::span<float>);
template void add(std::span<const float>, std::span<float>);
template void add(std::span<const bf16>, std::span<float>);
template void add(std::span<const f16>, std::span<float>);
template void start_sum(std::span<const float>, std::span<float>);
template void start_sum(std::span<const bf16>, std::span<float>);
template void start_sum(std::span<const f16>, std::span<float>);
template void widen(std::span<const float>, std::span<float>);
template void widen(std::span<const bf16>, std::span<float>);
template void widen(std::span<const f16>, std::span<float>);

}  // namespace finetune::kernels
