#pragma once
// SPDX-License-Identifier: Apache-2.0
// Weights of one process by the rows of a parameter table, for the tests of ops.

#include <ATen/ATen.h>

#include <map>
#include <utility>
#include <vector>

#include "model/parameter_table.hpp"
#include "model/weights.hpp"
#include "unit/model/tiny_weights.hpp"

namespace finetune::tests {

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

}  // namespace finetune::tests
