#pragma once
// SPDX-License-Identifier: Apache-2.0
// What to say where a run lacks GPU memory although its plan fitted.

#include "comm/device.hpp"
#include "comm/gpu_memory.hpp"
#include "train/input/input.hpp"
#include "train/run/planning.hpp"

namespace finetune::train {

/// The plan by category beside what libtorch's allocator had at its peaks, and which changes of the
/// deck or job save most. `device`: where the tensors are.
comm::GpuMemoryAdvice memory_advice(const PlannedRun& planned, const model::ParameterTable& table,
                                    at::Device device);

/// From here on, a lack of memory on this rank's GPU is told with that. On the CPU it does nothing.
void advise_on_memory(const PlannedRun& planned, const Input& input, const comm::Device& device);

}  // namespace finetune::train
