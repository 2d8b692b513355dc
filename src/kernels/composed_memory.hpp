#pragma once
// SPDX-License-Identifier: Apache-2.0
// Of compositions of layers that remember: the stretches of tokens that they go through.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace finetune::kernels::composed {

/// As MemoryRun. `memory`: fp32, changed in place; undefined: none.
struct MemoryStretch {
  std::int64_t first = 0, count = 0;
  at::Tensor memory = {};
};

/// What `of_stretch(stretch)` gives for each, [count, outputs], one after the other: [N, outputs]
/// for x_NI [N, ...], in its dtype. Stretches are in order; rows that are of none become 0.
template <class F>
at::Tensor by_stretches(const at::Tensor& x_NI, std::int64_t outputs,
                        const std::vector<MemoryStretch>& stretches, const F& of_stretch) {
  std::vector<at::Tensor> parts;
  std::int64_t done = 0;
  const auto fill_until = [&](std::int64_t row) {
    if (row > done) parts.push_back(at::zeros({row - done, outputs}, x_NI.options()));
  };
  for (const MemoryStretch& stretch : stretches) {
    if (stretch.count == 0) continue;
    fill_until(stretch.first);
    parts.push_back(of_stretch(stretch).to(x_NI.scalar_type()));
    done = stretch.first + stretch.count;
  }
  fill_until(x_NI.size(0));
  return parts.size() == 1 ? parts.front() : at::cat(parts, 0);
}

}  // namespace finetune::kernels::composed
