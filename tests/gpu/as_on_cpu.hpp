#pragma once
// SPDX-License-Identifier: Apache-2.0
// The same computation on the device under test and on the CPU, compared tensor by tensor.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device_under_test.hpp"
#include "model/ops.hpp"
#include "support/margins.hpp"
#include "support/weights.hpp"

namespace finetune::tests::gpu {

inline const char* name_of(at::ScalarType dtype) {
  return dtype == at::kFloat ? "fp32" : dtype == at::kBFloat16 ? "bf16" : "fp16";
}

inline const auto all_dtypes = testing::Values(at::kFloat, at::kBFloat16, at::kHalf);

/// What a narrow float or another order of sums may change, as part of the largest entry: bf16
/// keeps 8 bits, fp16 11, and a result has been rounded a few times on its way.
inline double tolerance(at::ScalarType dtype) {
  return dtype == at::kFloat ? 2e-5 : dtype == at::kHalf ? 6e-3 : 4e-2;
}

/// Where a computation runs, and what came out of it.
class Computation {
 public:
  /// Numbers are such that `narrow` has them, and are computed with in `compute`.
  Computation(at::Device device, at::ScalarType narrow, at::ScalarType compute)
      : device_(device), narrow_(narrow), compute_(compute) {}

  at::Device device() const { return device_; }
  at::ScalarType dtype() const { return compute_; }

  at::Tensor number(const at::Tensor& on_host) const {
    return on_host.to(narrow_).to(compute_).to(device_);
  }
  at::Tensor normal(at::IntArrayRef shape, std::uint64_t seed, double scale = 1) const {
    return number(tests::normal(shape, seed) * scale);
  }
  at::Tensor leaf(at::IntArrayRef shape, std::uint64_t seed) const {
    return normal(shape, seed).set_requires_grad(true);
  }
  at::Tensor integers(std::int64_t below, std::int64_t count, std::uint64_t seed) const {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    return at::randint(below, {count}, generator, at::TensorOptions(at::kLong)).to(device_);
  }

  void keep(std::string name, const at::Tensor& result) {
    // On the CPU it would change with the tensor.
    results_.emplace_back(std::move(name), result.detach().cpu().clone());
  }
  /// Keeps y, and the gradient of x for some gradient of y.
  void keep_with_gradient(const at::Tensor& y, const at::Tensor& x) {
    keep("y", y);
    keep("dx", torch::autograd::grad({y}, {x}, {normal(y.sizes(), 99)})[0]);
  }
  void keep_gradients(const TinyWeights& weights, int rows) {
    for (int row = 0; row < rows; ++row)
      if (weights.is_written(row))
        keep("gradient of row " + std::to_string(row), weights.gradient_of(row));
  }

  const std::vector<std::pair<std::string, at::Tensor>>& results() const { return results_; }

 private:
  at::Device device_;
  at::ScalarType narrow_, compute_;
  std::vector<std::pair<std::string, at::Tensor>> results_;
};

using Compute = std::function<void(Computation&)>;

enum class Agree { within_tolerance, to_the_bit };

/// Runs `f` on the device in `dtype` and on the CPU: in fp32 to compare within a tolerance, in
/// `dtype` to compare bits. A comparison of zeros alone is a failure.
inline void expect_as_on_cpu(at::ScalarType dtype, const Compute& f,
                             Agree agree = Agree::within_tolerance, double part = 0) {
  Computation there(device(), dtype, dtype);
  Computation here(at::kCPU, dtype, agree == Agree::to_the_bit ? dtype : at::kFloat);
  f(here);
  f(there);
  ASSERT_FALSE(here.results().empty());
  ASSERT_EQ(there.results().size(), here.results().size());
  for (std::size_t i = 0; i < here.results().size(); ++i) {
    const auto& [name, expected] = here.results()[i];
    const at::Tensor& actual = there.results()[i].second;
    SCOPED_TRACE(name);
    ASSERT_EQ(actual.sizes(), expected.sizes());
    EXPECT_GT(expected.to(at::kDouble).abs().max().item<double>(), 0) << "nothing is compared";
    if (agree == Agree::to_the_bit) {
      EXPECT_EQ(actual.scalar_type(), expected.scalar_type());
      EXPECT_TRUE(at::equal(actual, expected)) << (actual != expected).sum().item<std::int64_t>()
                                               << " of " << expected.numel() << " differ";
      continue;
    }
    const at::Tensor e = expected.to(at::kDouble);
    const double largest = e.abs().max().item<double>();
    const double apart = (actual.to(at::kDouble) - e).abs().max().item<double>();
    EXPECT_LE(apart, noted(apart, (part > 0 ? part : tolerance(dtype)) * largest));
  }
}

}  // namespace finetune::tests::gpu
