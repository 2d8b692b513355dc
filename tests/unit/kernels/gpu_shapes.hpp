#pragma once
// SPDX-License-Identifier: Apache-2.0
// What is written for a GPU beside the host's kernels: the same bits.

#include <vector>

#include "kernels/place.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test {

using Tensors = std::vector<at::Tensor>;

/// f(tensors, place) changes tensors: by the host's kernel and by the GPU's shape to the same bits.
template <class F>
void expect_the_same(const Tensors& before, const F& f) {
  const auto run = [&](const Place& place) {
    Tensors all;
    for (const at::Tensor& tensor : before)
      all.push_back(tensor.clone());
    f(all, place);
    return all;
  };
  const Tensors host = run({}), gpu = run(Place::gpu(nullptr));
  for (std::size_t i = 0; i < host.size(); ++i)
    EXPECT_TRUE(at::equal(host[i], gpu[i])) << "tensor " << i;
}

template <class T>
class GpuShape : public ::testing::Test {};

}  // namespace finetune::kernels::test
