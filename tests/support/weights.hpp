#pragma once
// SPDX-License-Identifier: Apache-2.0
// Weights of one process, kept as plain tensors or by the rows of a table, for the tests of ops.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "model/expert_dispatch.hpp"
#include "model/parameter_table.hpp"
#include "model/weights.hpp"
#include "support/architecture.hpp"
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

/// Weights of a table's rows. What is read as one is put together when it is first asked for.
class TableWeights : public model::Weights {
 public:
  /// Random numbers, the same in every run.
  TableWeights(const model::ParameterTable& table, at::ScalarType dtype) : table_(table) {
    for (std::size_t i = 0; i < table.rows.size(); ++i)
      tensors_.push_back(normal(table.rows[i].shape, i).mul_(0.1).to(dtype));
  }
  /// One tensor per row of the table; of other shapes where a rank holds a part.
  TableWeights(const model::ParameterTable& table, std::vector<at::Tensor> tensors)
      : table_(table), tensors_(std::move(tensors)) {}

  const at::Tensor& tensor(int row) const { return tensors_.at(static_cast<std::size_t>(row)); }

  /// What was added to the gradient of a row, in whatever ranges it was read.
  at::Tensor gradient_of(int row) const {
    at::Tensor sum = at::zeros_like(tensor(row));
    for (const auto& [rows, range] : ranges_) {
      if (row < rows.first || row >= rows.first + rows.second) continue;
      std::int64_t before = 0;
      for (int other = rows.first; other < row; ++other)
        before += tensor(other).size(0);
      sum.add_(range.gradient.narrow(0, before, sum.size(0)));
    }
    return sum;
  }

  at::Tensor weight(model::RowRange rows) const override { return range(rows).weight; }
  model::GradientSlot gradient(model::RowRange rows) override {
    if (!table_.row(rows.first).trainable) return {};
    return {range(rows).gradient, true};
  }
  std::vector<model::TrainedPart> trained(model::RowRange rows) const override {
    if (!table_.row(rows.first).trainable) return {};
    return {{rows, 0, 0}};
  }
  std::vector<model::AdaptedPart> adapted(model::RowRange rows) const override {
    std::vector<model::AdaptedPart> parts;
    std::int64_t first = 0;
    for (int row = rows.first; row < rows.first + rows.num; ++row) {
      const model::Parameter& of = table_.row(row);
      if (of.adapted.exists()) parts.push_back({row, &of.adapted, first, of.shape[0]});
      first += of.shape[0];
    }
    return parts;
  }

 private:
  struct Range {
    at::Tensor weight, gradient;
  };
  const Range& range(model::RowRange rows) const {
    Range& range = ranges_[{rows.first, rows.num}];
    if (range.weight.defined()) return range;
    const auto first = tensors_.begin() + rows.first;
    // One may be a number, without a dim.
    range.weight =
        rows.num == 1 ? *first : at::cat(std::vector<at::Tensor>(first, first + rows.num));
    range.gradient = at::zeros_like(range.weight);
    return range;
  }

  const model::ParameterTable& table_;
  std::vector<at::Tensor> tensors_;
  mutable std::map<std::pair<int, int>, Range> ranges_;
};

/// The router, then gate with up and down of each expert; or of all in one tensor.
inline std::vector<at::Tensor> expert_weights(model::ExpertTensors tensors,
                                              const at::Tensor& router, std::int64_t hidden) {
  const std::int64_t num = router.size(0), width = router.size(1);
  std::vector<at::Tensor> all{router}, gate_up, down;
  for (std::int64_t e = 0; e < num; ++e) {
    const auto seed = static_cast<std::uint64_t>(e);
    gate_up.push_back(normal({2 * hidden, width}, 10 + seed) * 0.5);
    down.push_back(normal({width, hidden}, 20 + seed) * 0.5);
    if (tensors == model::ExpertTensors::separate)
      all.insert(all.end(), {gate_up.back(), down.back()});
    gate_up.back() = gate_up.back().t();
    down.back() = down.back().t();
  }
  if (tensors == model::ExpertTensors::fused)
    all.insert(all.end(), {at::stack(gate_up), at::stack(down)});
  return all;
}
inline model::ExpertRows expert_rows(model::ExpertTensors tensors) {
  return {.router = 0,
          .gate_up = {1, 1},
          .down = 2,
          .stride = tensors == model::ExpertTensors::separate ? 2 : 0};
}

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
