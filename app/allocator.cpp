// SPDX-License-Identifier: Apache-2.0
#include "allocator.hpp"

#include <malloc.h>

#include <cstdlib>

namespace finetune::app {

void keep_freed_memory() {
  // A user who tunes malloc by environment variables knows better.
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") != nullptr || std::getenv("GLIBC_TUNABLES") != nullptr)
    return;
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2147483647);
}

}  // namespace finetune::app
