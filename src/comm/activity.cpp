// SPDX-License-Identifier: Apache-2.0
#include "comm/activity.hpp"

namespace finetune::comm {

void Activity::set_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void Activity::enter(Track track, const char* collective, const std::string& axis) {
  const std::lock_guard lock(mutex_);
  State& state = states_[static_cast<std::size_t>(track)];
  ++state.sequence;
  state.is_inside = true;
  state.collective = collective;
  state.axis = axis;
  state.since = core::Stopwatch();
}

void Activity::leave(Track track) {
  const std::lock_guard lock(mutex_);
  State& state = states_[static_cast<std::size_t>(track)];
  state.is_inside = false;
  state.since = core::Stopwatch();
}

Doing Activity::look(Track track) const {
  const std::lock_guard lock(mutex_);
  const State& state = states_[static_cast<std::size_t>(track)];
  return {.step = step_,
          .sequence = state.sequence,
          .is_inside = state.is_inside,
          .collective = state.collective,
          .axis = state.axis,
          .seconds = state.since.seconds()};
}

}  // namespace finetune::comm
