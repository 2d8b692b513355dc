// SPDX-License-Identifier: Apache-2.0
#include "base/merge.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "adapters/lora/math.hpp"
#include "support/threads.hpp"
#include "unit/base/tensors.hpp"

namespace finetune::base::merge_test {
namespace {

/// A matrix [rows, 96] and an adapter of rank 8 on top of it.
model::ParameterTable table_of(std::int64_t rows) {
  model::Parameter weight{.name = "w", .shape = {rows, 96}, .trainable = false};
  weight.adapted = {.parts = {1, 2}, .scale = 0.75, .math = &adapters::lora::math()};
  return {.rows = {weight,
                   {.name = "a", .shape = {8, 96}, .adapts = 0},
                   {.name = "b", .shape = {rows, 8}, .adapts = 0}},
          .units = {"block"}};
}

float value_of(std::int64_t i) {
  return std::sin(static_cast<float>(i * i));
}

TEST(Merge, IsTheSameBitsOnAnyThreads) {
  // Rows of which 2, 3 or 4 threads get numbers that products treat otherwise than the rest.
  for (const std::int64_t rows : {9, 41}) {
    const model::ParameterTable table = table_of(rows);
    std::vector<float> weight(static_cast<std::size_t>(table.row(0).count()));
    for (std::size_t i = 0; i < weight.size(); ++i)
      weight[i] = value_of(static_cast<std::int64_t>(i) + 5);
    const weights::TestFolder folder;
    const weights::ModelFiles files =
        tests::Tensors().add("w", "F32", table.row(0).shape, weight).in(folder);
    tests::expect_same_on_any_threads([&] {
      Merge merge(
          files, table,
          [](const model::Parameter& row, std::int64_t first, std::span<float> target) {
            for (std::size_t i = 0; i < target.size(); ++i)
              target[i] = value_of(first + static_cast<std::int64_t>(i) + row.count());
          },
          std::vector<core::DType>(table.rows.size(), core::DType::f32), MergeInto::trained);
      const at::Tensor merged = at::empty(table.row(0).shape, at::kFloat);
      merge.read(0, 0, {merged.data_ptr<float>(), static_cast<std::size_t>(merged.numel())});
      EXPECT_EQ(merge.report().num_merged, 1);
      return std::vector<at::Tensor>{merged};
    });
  }
}

}  // namespace
}  // namespace finetune::base::merge_test
