// SPDX-License-Identifier: Apache-2.0
#include "data/steps/ahead.hpp"

#include <string>
#include <utility>

#include "trace/recorder.hpp"

namespace finetune::data {

StepData StepsAhead::take(std::int64_t step) {
  std::future<StepData> prepared = std::move(next_);
  const bool is_the_one = prepared.valid() && next_step_ == step;
  StepData data = is_the_one ? prepared.get() : stream_.step(step);
  next_step_ = step + 1;
  if (next_step_ < num_steps_)
    next_ = std::async(std::launch::async, [this, next = next_step_] {
      const trace::Span span("data", "micro-batches", std::to_string(next + 1));
      return stream_.step(next);
    });
  return data;
}

}  // namespace finetune::data
