#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tensors that are to have the same bits on any number of threads.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <vector>

namespace finetune::tests {

inline bool same_floats(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.contiguous().view(at::kInt), b.contiguous().view(at::kInt));
}

/// `compute` returns fp32 tensors.
template <class Compute>
void expect_same_on_any_threads(const Compute& compute) {
  const int before = at::get_num_threads();
  std::vector<at::Tensor> first;
  for (const int threads : {1, 2, 3, 4}) {
    at::set_num_threads(threads);
    const std::vector<at::Tensor> results = compute();
    EXPECT_EQ(at::get_num_threads(), threads) << "it leaves the number as it was";
    if (first.empty()) first = results;
    ASSERT_EQ(results.size(), first.size());
    for (std::size_t i = 0; i < results.size(); ++i)
      EXPECT_TRUE(same_floats(results[i], first[i])) << "tensor " << i << ", threads " << threads;
  }
  at::set_num_threads(before);
}

}  // namespace finetune::tests
