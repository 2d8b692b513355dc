#pragma once
// SPDX-License-Identifier: Apache-2.0
// Monotonic seconds; wall-clock time is for people and files, and never used to measure or to time
// out.

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

/// Wall-clock seconds since 1970.
inline double unix_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace finetune::core
