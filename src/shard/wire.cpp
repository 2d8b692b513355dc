// SPDX-License-Identifier: Apache-2.0
#include "shard/wire.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>

#include "kernels/fixed_point.hpp"
#include "kernels/gpu_kernels.hpp"
#include "kernels/packing.hpp"
#include "shard/options.hpp"

namespace finetune::shard {
namespace {

/// The stream's thread computes alone: beside it the computation has all cores.
constexpr std::int64_t grain = kernels::grain_elements;

template <typename F>
void by_grains(std::int64_t n, const F& f) {
  for (std::int64_t first = 0; first < n; first += grain)
    f(first, std::min(grain, n - first));
}

template <typename T>
std::span<const T> part(const at::Tensor& tensor, std::int64_t offset, std::int64_t n) {
  return {static_cast<const T*>(tensor.const_data_ptr()) + offset, static_cast<std::size_t>(n)};
}

template <typename T>
std::span<T> all_of(at::Tensor& tensor) {
  return {tensor.data_ptr<T>(), static_cast<std::size_t>(tensor.numel())};
}

/// Calls f.operator()<T>() with the kernels' element type.
template <typename F>
auto dispatch(at::ScalarType dtype, const F& f) {
  switch (dtype) {
    case at::kFloat:
      return f.template operator()<float>();
    case at::kHalf:
      return f.template operator()<kernels::f16>();
    default:
      return f.template operator()<kernels::bf16>();
  }
}

template <typename From, typename To>
void convert(std::span<const From> from, std::span<To> to) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(to.data(), from.data(), from.size_bytes());
  } else if constexpr (std::is_same_v<To, float>) {
    kernels::widen(from, to);
  } else if constexpr (std::is_same_v<From, kernels::f16>) {
    std::array<float, grain> wide;
    kernels::widen(from, std::span(wide).first(from.size()));
    kernels::narrow(std::span<const float>(wide).first(from.size()), to);
  } else {
    kernels::narrow(from, to);
  }
}

kernels::FixedPoint fixed_point(double limit) {
  return {.scale_bits = fixed_point_bits, .limit = static_cast<float>(limit)};
}

}  // namespace

double largest_term(std::int64_t num_terms) {
  return std::ldexp(1.0, 62 - fixed_point_bits) / static_cast<double>(num_terms);
}

std::int64_t pack(const at::Tensor& gradient, std::int64_t offset, std::int64_t n,
                  const plan::Numbers& numbers, double limit, std::byte* wire) {
  std::int64_t bad = -1;
  dispatch(gradient.scalar_type(), [&]<typename T>() {
    by_grains(n, [&](std::int64_t first, std::int64_t count) {
      const auto from = part<T>(gradient, offset + first, count);
      if (numbers.is_fixed_point()) {
        const std::int64_t i = kernels::to_fixed(
            from, fixed_point(limit),
            {reinterpret_cast<std::int64_t*>(wire) + first, static_cast<std::size_t>(count)});
        if (i >= 0 && bad < 0) bad = offset + first + i;
        return;
      }
      dispatch(to_aten(numbers.reduce), [&]<typename W>() {
        convert(from,
                std::span(reinterpret_cast<W*>(wire) + first, static_cast<std::size_t>(count)));
      });
    });
  });
  return bad;
}

void add(const std::byte* wire, std::int64_t n, const plan::Numbers& numbers, std::byte* sums) {
  by_grains(n, [&](std::int64_t first, std::int64_t count) {
    const auto size = static_cast<std::size_t>(count);
    if (numbers.is_fixed_point()) {
      kernels::add(std::span(reinterpret_cast<const std::int64_t*>(wire) + first, size),
                   std::span(reinterpret_cast<std::int64_t*>(sums) + first, size));
      return;
    }
    dispatch(to_aten(numbers.reduce), [&]<typename W>() {
      kernels::add(std::span(reinterpret_cast<const W*>(wire) + first, size),
                   std::span(reinterpret_cast<float*>(sums) + first, size));
    });
  });
}

std::int64_t add(const at::Tensor& gradient, const plan::Numbers& numbers, double limit,
                 bool is_first, at::Tensor sum) {
  const std::int64_t n = gradient.numel();
  return dispatch(gradient.scalar_type(), [&]<typename T>() -> std::int64_t {
    const auto terms = part<T>(gradient, 0, n);
    if (numbers.is_fixed_point()) {
      const auto sums = all_of<std::int64_t>(sum);
      return is_first ? kernels::to_fixed(terms, fixed_point(limit), sums)
                      : kernels::add_fixed(terms, fixed_point(limit), sums);
    }
    is_first ? kernels::start_sum(terms, all_of<float>(sum))
             : kernels::add(terms, all_of<float>(sum));
    return -1;
  });
}

void pack_on_device(const at::Tensor& gradient, double limit, at::Tensor wire, at::Tensor found) {
  dispatch(gradient.scalar_type(), [&]<typename T>() {
    kernels::to_fixed(part<T>(gradient, 0, gradient.numel()), fixed_point(limit),
                      all_of<std::int64_t>(wire), all_of<std::int64_t>(found).first<1>(),
                      kernels::place_on(gradient.device()));
  });
}

void add_on_device(const at::Tensor& gradient, double limit, at::Tensor sum, at::Tensor found) {
  dispatch(gradient.scalar_type(), [&]<typename T>() {
    kernels::add_fixed(part<T>(gradient, 0, gradient.numel()), fixed_point(limit),
                       all_of<std::int64_t>(sum), all_of<std::int64_t>(found).first<1>(),
                       kernels::place_on(gradient.device()));
  });
}

FirstBad find_bad(const at::Tensor& gradient, const at::Tensor& scaled, double limit) {
  // NaN is neither below nor above.
  const at::Tensor good = scaled.lt(limit).logical_and_(scaled.gt(-limit));
  // Of equal elements argmin finds the first.
  const at::Tensor element = good.view(at::kByte).argmin().view(1);
  return {.is_good = good.index_select(0, element),
          .element = element,
          .value = gradient.index_select(0, element)};
}

}  // namespace finetune::shard
