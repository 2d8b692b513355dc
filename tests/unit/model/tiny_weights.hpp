#pragma once
// SPDX-License-Identifier: Apache-2.0
// Weights of one process, kept as plain tensors, for the tests of ops.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "model/architecture.hpp"
#include "model/weights.hpp"
#include "support/margins.hpp"

namespace finetune::tests {

/// Normal numbers, the same in every run.
inline at::Tensor normal(at::IntArrayRef shape, std::uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions(at::kFloat));
}

/// The numbers that rotary positions depend on.
inline model::Architecture rotary(std::int64_t head_size, double rope_theta) {
  model::Architecture architecture;
  architecture.head_size = head_size;
  architecture.rope_theta = rope_theta;
  return architecture;
}

/// Each tensor is found by the first row of a range; the gradients begin as not written.
class TinyWeights : public model::Weights {
 public:
  explicit TinyWeights(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
    // What is overwritten must not show: the ops may not rely on zeros.
    for (const at::Tensor& tensor : tensors_)
      gradients_.push_back(at::full_like(tensor, tensor.scalar_type() == at::kHalf ? 6e4 : 1e30));
    written_.resize(tensors_.size(), false);
  }

  at::Tensor weight(model::RowRange rows) const override { return tensors_.at(index(rows)); }

  model::GradientSlot gradient(model::RowRange rows) override {
    if (frozen) return {};
    const bool accumulate = written_.at(index(rows));
    written_[index(rows)] = true;
    return {gradients_.at(index(rows)), accumulate};
  }

  const at::Tensor& gradient_of(int row) const { return gradients_.at(index({row, 1})); }
  bool is_written(int row) const { return written_.at(index({row, 1})); }
  void forget_gradients() { written_.assign(written_.size(), false); }

  bool frozen = false;

 private:
  static std::size_t index(model::RowRange rows) { return static_cast<std::size_t>(rows.first); }

  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> gradients_;
  std::vector<bool> written_;
};

/// No entry differs by more than `part` of the largest expected one.
inline void expect_within(const at::Tensor& actual, const at::Tensor& expected, double part) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  const at::Tensor a = actual.to(at::kDouble), e = expected.to(at::kDouble);
  const double difference = (a - e).abs().max().item<double>();
  EXPECT_LE(difference, noted(difference, part * e.abs().max().item<double>()))
      << "actual\n"
      << a << "\nexpected\n"
      << e;
}

}  // namespace finetune::tests
