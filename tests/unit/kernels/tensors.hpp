#pragma once
// SPDX-License-Identifier: Apache-2.0
// Spans over tensors, and comparisons of tensors, for the tests of the kernels.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "kernels/element.hpp"
#include "support/margins.hpp"

namespace finetune::kernels::test {

/// The elements of a contiguous tensor; an undefined tensor has none.
template <class T>
std::span<T> elements(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_EQ(tensor.element_size(), static_cast<std::int64_t>(sizeof(T)));
  return {static_cast<T*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

template <class T>
constexpr at::ScalarType scalar_type() {
  return sizeof(T) == sizeof(bf16) ? at::kBFloat16 : at::kFloat;
}

/// Normal numbers, the same in every run.
template <class T>
at::Tensor normal(at::IntArrayRef shape, std::uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions(at::kFloat)).to(scalar_type<T>());
}

inline at::Tensor integers(std::int64_t below, std::int64_t count, std::uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randint(below, {count}, generator, at::TensorOptions(at::kLong));
}

/// What two results of type T may differ by, as part of the value: rounding of fp32 sums, or one
/// step of bf16 where they were on two sides of a tie. A step is 2^-8 of values just below a power
/// of two, and 2^-7 of those above it.
template <class T>
constexpr double tolerance() {
  return sizeof(T) == sizeof(bf16) ? 1.0 / 128 : 1e-6;
}

/// Every entry equal within `relative` of the expected entry or of a thousandth of the largest one.
inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, double relative) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  if (actual.numel() == 0) return;
  const at::Tensor a = actual.to(at::kDouble), e = expected.to(at::kDouble);
  const at::Tensor unit = at::maximum(e.abs(), e.abs().max() * 1e-3).clamp_min(1e-30);
  const double difference = ((a - e).abs() / unit).max().item<double>();
  EXPECT_LE(difference, tests::noted(difference, relative));
}

/// No entry differs by more than `part` of the largest expected entry: for sums whose terms cancel.
inline void expect_within(const at::Tensor& actual, const at::Tensor& expected, double part) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  const at::Tensor a = actual.to(at::kDouble), e = expected.to(at::kDouble);
  const double difference = (a - e).abs().max().item<double>();
  EXPECT_LE(difference, tests::noted(difference, part * e.abs().max().item<double>()));
}

/// `actual` is as near to `exact`, computed in fp64, as fp32 allows: the bound is four times what
/// another way to compute it in fp32, `rounded`, is off by, as sums in another order have other
/// roundings, some steps of fp32, and half a step of bf16 where it is rounded to that.
inline void expect_as_near(const at::Tensor& actual, const at::Tensor& rounded,
                           const at::Tensor& exact) {
  ASSERT_EQ(actual.sizes(), exact.sizes());
  const double largest = exact.abs().max().item<double>();
  const auto off = [&](const at::Tensor& t) {
    return (t.to(at::kDouble) - exact).abs().max().item<double>() / largest;
  };
  const double half = actual.scalar_type() == at::kBFloat16 ? tolerance<bf16>() / 2 : 0.0;
  const double is_off = off(actual), bound = 4 * off(rounded) + tolerance<float>() + half;
  EXPECT_LE(is_off, tests::noted(is_off, bound));
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType bits = a.element_size() == 2 ? at::kShort : at::kInt;
  return at::equal(a.view(bits), b.view(bits));
}

/// Runs `body` with each of 1, 2 and 3 threads; tests compare what it returns.
template <class Body>
std::vector<at::Tensor> with_thread_counts(const Body& body) {
  const int before = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    results.push_back(body());
  }
  at::set_num_threads(before);
  return results;
}

template <class Body>
void expect_same_bits_for_any_thread_count(const Body& body) {
  const std::vector<at::Tensor> results = with_thread_counts(body);
  EXPECT_TRUE(same_bits(results[0], results[1]));
  EXPECT_TRUE(same_bits(results[0], results[2]));
}

using ActivationTypes = ::testing::Types<float, bf16>;

}  // namespace finetune::kernels::test
