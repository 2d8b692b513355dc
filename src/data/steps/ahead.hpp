#pragma once
// SPDX-License-Identifier: Apache-2.0
// The data of the next step, collated while the one before computes.

#include <cstdint>
#include <future>

#include "data/steps/stream.hpp"

namespace finetune::data {

/// Hands out steps of a stream in any order; the one behind each is prepared meanwhile on a thread
/// of its own, whose cost is what reading tokens may be: a page of a file that nobody has read yet.
/// One step is kept at most. What preparing throws, `take` throws.
class StepsAhead {
 public:
  /// Nothing is prepared from `num_steps` on. `stream` outlives this.
  StepsAhead(const Stream& stream, std::int64_t num_steps)
      : stream_(stream), num_steps_(num_steps) {}

  /// The same as Stream::step(step). No communication.
  StepData take(std::int64_t step);

 private:
  const Stream& stream_;
  std::int64_t num_steps_;
  std::int64_t next_step_ = -1;
  std::future<StepData> next_;  ///< of next_step_; waits for the thread where it is left
};

}  // namespace finetune::data
