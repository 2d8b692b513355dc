// SPDX-License-Identifier: Apache-2.0
#include "model/detail/memory_stretches.hpp"

#include <array>

#include "core/error.hpp"

namespace finetune::model {

using kernels::composed::MemoryStretch;

std::vector<MemoryStretch> memory_stretches(const Sequence& sequence, std::int64_t i_layer,
                                            std::int64_t memory_size,
                                            const at::TensorOptions& options) {
  core::check(sequence.context == nullptr, "what remembers sees all tokens of a sample");
  std::vector<MemoryStretch> stretches;
  if (sequence.stretches.empty())
    for (std::int64_t row = 0; row < sequence.batch; ++row)
      stretches.push_back({row * sequence.length, sequence.length});
  for (std::size_t i = 0; i < sequence.stretches.size(); ++i) {
    const Stretch& stretch = sequence.stretches[i];
    if (stretch.is_padding) continue;
    MemoryStretch& each = stretches.emplace_back(MemoryStretch{stretch.begin, stretch.length});
    if (sequence.caches.empty()) continue;
    at::Tensor& memory = sequence.caches[i]->layers[static_cast<std::size_t>(i_layer)];
    if (!memory.defined()) memory = at::zeros({memory_size}, options.dtype(at::kFloat));
    each.memory = memory;
  }
  return stretches;
}

std::vector<kernels::MemoryRun> runs_of(const std::vector<MemoryStretch>& stretches) {
  std::vector<kernels::MemoryRun> runs;
  for (const MemoryStretch& stretch : stretches)
    runs.push_back({stretch.first, stretch.count,
                    stretch.memory.defined() ? stretch.memory.data_ptr<float>() : nullptr});
  return runs;
}

at::Tensor new_rows(const std::vector<MemoryStretch>& stretches, const at::Tensor& x_NI,
                    std::int64_t columns) {
  std::int64_t rows = 0;
  for (const MemoryStretch& stretch : stretches)
    rows += stretch.count;
  const std::array<std::int64_t, 2> sizes{x_NI.size(0), columns};
  return rows == x_NI.size(0) ? at::empty(sizes, x_NI.options()) : at::zeros(sizes, x_NI.options());
}

}  // namespace finetune::model
