// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/elementwise.hpp"

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/host_threads.hpp"

namespace finetune::kernels {
namespace {

struct First {
  KOKKOS_FORCEINLINE_FUNCTION float operator()(float a, float) const { return a; }
};
struct Sum {
  KOKKOS_FORCEINLINE_FUNCTION float operator()(float a, float b) const { return a + b; }
};
struct Scaled {
  float factor;
  KOKKOS_FORCEINLINE_FUNCTION float operator()(float a, float) const { return a * factor; }
};

// out = operation(a, b), element by element.
template <class A, class B, class Out, class Operation>
struct Elementwise {
  const A* a;
  const B* b;
  Out* out;
  Operation operation;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
#pragma GCC ivdep
    for (std::int64_t i = first; i < last; ++i) {
      out[i] = round_to<Out>(operation(to_float(a[i]), to_float(b[i])));
    }
  }
};

template <class A, class B, class Out, class Operation>
void apply(std::span<const A> a, std::span<const B> b, std::span<Out> out, Operation operation) {
  core::check(a.size() == out.size() && b.size() == out.size(),
              "elementwise: all spans have the same size");
  launch(static_cast<std::int64_t>(out.size()), grain_elements,
         Elementwise<A, B, Out, Operation>{a.data(), b.data(), out.data(), operation});
}

template <class T>
std::span<const T> read_only(std::span<T> values) {
  return values;
}

}  // namespace

void convert(std::span<const float> source, std::span<bf16> target) {
  apply(source, source, target, First{});
}
void convert(std::span<const bf16> source, std::span<float> target) {
  apply(source, source, target, First{});
}

void accumulate(std::span<const bf16> source, std::span<float> target) {
  apply(read_only(target), source, target, Sum{});
}
void accumulate(std::span<const float> source, std::span<float> target) {
  apply(read_only(target), source, target, Sum{});
}

void scale(std::span<float> values, float factor) {
  apply(read_only(values), read_only(values), values, Scaled{factor});
}
void scale(std::span<bf16> values, float factor) {
  apply(read_only(values), read_only(values), values, Scaled{factor});
}

void add(std::span<const float> a, std::span<const float> b, std::span<float> sum) {
  apply(a, b, sum, Sum{});
}
void add(std::span<const bf16> a, std::span<const bf16> b, std::span<bf16> sum) {
  apply(a, b, sum, Sum{});
}

}  // namespace finetune::kernels
