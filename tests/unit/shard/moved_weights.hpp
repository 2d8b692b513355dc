#pragma once
// SPDX-License-Identifier: Apache-2.0
// What roundings do to a model: one rank's pass next to passes with weights that are moved by a
// step of fp32. Sums in another order, as those of several ranks, are what such weights give.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/margins.hpp"
#include "unit/shard/whole_model.hpp"

namespace finetune::tests {

/// One rank's pass, and the gradient of every row.
struct WholePass {
  PassResults results;
  std::vector<at::Tensor> gradients;
};

inline WholePass whole_pass(const Case& of, const model::ParameterTable& table,
                            TableWeights& weights) {
  model::Ops ops(weights, model::Path::kernels, of.recompute);
  WholePass pass{run_pass(ops, table, of, of.balance), {}};
  for (int row = 0; row < std::ssize(table.rows); ++row)
    pass.gradients.push_back(weights.gradient_of(row));
  return pass;
}

/// `weights`, each the next number up or down, by chance.
inline TableWeights moved_weights(const model::ParameterTable& table, const TableWeights& weights,
                                  std::uint64_t seed) {
  std::vector<at::Tensor> moved;
  for (int row = 0; row < std::ssize(table.rows); ++row) {
    const at::Tensor& values = weights.tensor(row);
    const at::Tensor signs = normal(values.sizes(), seed + static_cast<std::uint64_t>(row)).sign();
    moved.push_back(values.nextafter(signs * std::numeric_limits<float>::infinity()));
  }
  return {table, moved};
}

/// `actual` is no further from `expected` than four times what the passes with moved weights are,
/// and a millionth of the largest entry; or, of sums of very many numbers, which the weights say
/// little of, what one that goes from number to number is off by: half a rounding times the root of
/// their count.
inline void expect_rounded_as(const at::Tensor& actual, const at::Tensor& expected,
                              const std::vector<at::Tensor>& moved, std::int64_t longest_sum) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  const auto off = [&](const at::Tensor& values) {
    return (values - expected).abs().max().item<double>();
  };
  double rounding = 0;
  for (const at::Tensor& each : moved)
    rounding = std::max(rounding, off(each));
  const double part = std::max(1e-6, 0x1p-25 * std::sqrt(static_cast<double>(longest_sum)));
  const double bound = 4 * rounding + part * expected.abs().max().item<double>();
  const double is_off = off(actual);
  EXPECT_LE(is_off, noted(is_off, bound)) << "actual\n" << actual << "\nexpected\n" << expected;
}

}  // namespace finetune::tests
