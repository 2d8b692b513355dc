#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a run knows of its GPU's memory, for the error that says there is too little of it.

#include <functional>
#include <string>

namespace finetune::comm {

struct GpuMemoryAdvice {
  std::string figures;  ///< what was planned and what was used: a clause
  std::string remedy;   ///< what to change, with its full stop
};

/// Asks `advice` whenever a lack of GPU memory is put in words, wherever it happened: libtorch
/// throws in the middle of anything. Of this process, which has one GPU; the last one counts. It
/// may be asked on any thread, and what it throws is left out.
void advise_on_gpu_memory(std::function<GpuMemoryAdvice()> advice);

}  // namespace finetune::comm
