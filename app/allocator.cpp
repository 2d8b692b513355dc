// SPDX-License-Identifier: Apache-2.0
#include "allocator.hpp"

#include <malloc.h>

#include <cstdlib>
#include <string>

#include "plan/memory/memory.hpp"

namespace finetune::app {

void keep_freed_memory() {
  // A user who tunes malloc by environment variables knows better.
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") != nullptr || std::getenv("GLIBC_TUNABLES") != nullptr)
    return;
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2147483647);
}

void bound_kept_products() {
  const std::string number = std::to_string(plan::num_kept_products);
  // A user who sets them knows better.
  for (const char* name : {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"})
    ::setenv(name, number.c_str(), 0);
}

}  // namespace finetune::app
