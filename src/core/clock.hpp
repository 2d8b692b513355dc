#pragma once
// SPDX-License-Identifier: Apache-2.0
// Monotonic seconds; wall-clock time is never used to measure or to time out.

#include <chrono>

namespace finetune::core {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  void restart() { start_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace finetune::core
