#pragma once
// SPDX-License-Identifier: Apache-2.0
// Of ops of layers that remember: what a pass's tokens are to them.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "kernels/composed_memory.hpp"
#include "kernels/memory_run.hpp"
#include "model/sequence.hpp"

namespace finetune::model {

/// What samples or texts there are, the latter with what a layer remembers of them, fp32
/// [memory_size] where `options` say. Precondition: a rank has all tokens of a sample.
std::vector<kernels::composed::MemoryStretch> memory_stretches(const Sequence& sequence,
                                                               std::int64_t i_layer,
                                                               std::int64_t memory_size,
                                                               const at::TensorOptions& options);

/// The same for kernels.
std::vector<kernels::MemoryRun> runs_of(
    const std::vector<kernels::composed::MemoryStretch>& stretches);

/// [N, columns] like x_NI [N, ...]: 0 unless the stretches are all of its rows.
at::Tensor new_rows(const std::vector<kernels::composed::MemoryStretch>& stretches,
                    const at::Tensor& x_NI, std::int64_t columns);

}  // namespace finetune::model
