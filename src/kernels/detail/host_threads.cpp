// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/host_threads.hpp"

#include <ATen/Parallel.h>

namespace finetune::kernels {

int num_host_threads() {
  return at::get_num_threads();
}

void run_on_threads(std::int64_t count, void (*work)(const void*, std::int64_t, std::int64_t),
                    const void* argument) {
  at::parallel_for(0, count, 1,
                   [&](std::int64_t first, std::int64_t last) { work(argument, first, last); });
}

}  // namespace finetune::kernels
