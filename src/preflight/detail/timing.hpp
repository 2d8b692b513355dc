#pragma once
// SPDX-License-Identifier: Apache-2.0
// How long a computation takes, on machines that others use too.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <time.h>

#include <algorithm>

#include "preflight/detail/rates.hpp"

namespace finetune::preflight {

/// Returns when the device has done what it was given: reading a number waits for it.
inline void finish(const at::Tensor& result) {
  (void)result.detach().as_strided({1}, {1}).to(at::kFloat).item<float>();
}

class Timer {
 public:
  Timer(Timing timing, at::Device device)
      : by_thread_(timing == Timing::computing && device.is_cpu() && at::get_num_threads() == 1),
        start_(now()) {}

  double seconds() const { return now() - start_; }

 private:
  double now() const {
    timespec time{};
    ::clock_gettime(by_thread_ ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  bool by_thread_;
  double start_;
};

/// Seconds that `f` takes, of which `result` is the last tensor: the best of several stretches of
/// calls, since what comes in between only ever adds.
template <typename F>
double seconds_of(const at::Tensor& result, Timing timing, const F& f) {
  constexpr int num_stretches = 5;
  constexpr double stretch_s = 0.04;
  f();
  finish(result);
  double best = 1e30;
  for (int i = 0; i < num_stretches; ++i) {
    const Timer timer(timing, result.device());
    int times = 0;
    double seconds = 0;
    do {
      f();
      finish(result);
      ++times;
      seconds = timer.seconds();
    } while (seconds < stretch_s);
    best = std::min(best, seconds / times);
  }
  return best;
}

}  // namespace finetune::preflight
