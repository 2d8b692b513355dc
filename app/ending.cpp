// SPDX-License-Identifier: Apache-2.0
#include "ending.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace finetune::app {

void end_without_unloading() {
#ifndef FINETUNE_ADDRESS_SANITIZER  // it looks for leaks when its library is unloaded
  // What others load before the program, a profiler for instance, may write its results then.
  if (std::getenv("LD_PRELOAD") != nullptr || std::getenv("LD_AUDIT") != nullptr) return;
  // Functions for the end run in the opposite order, so this is the last of those since main().
  ::on_exit(
      [](int code, void*) {
        std::cout.flush();
        std::fflush(nullptr);
        ::_exit(code);
      },
      nullptr);
#endif
}

}  // namespace finetune::app
