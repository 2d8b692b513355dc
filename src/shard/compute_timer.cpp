// SPDX-License-Identifier: Apache-2.0
#include "shard/compute_timer.hpp"

#include "shard/detail/recorded_event.hpp"

namespace finetune::shard {
namespace {

constexpr c10::EventFlag with_time = c10::EventFlag::BACKEND_DEFAULT;

}  // namespace

void ComputeTimer::begin() {
  if (device_.is_cpu()) {
    watch_ = {};
    return;
  }
  seconds();
  end_.reset();
  begin_.emplace(recorded_event(device_, with_time));
}

void ComputeTimer::end() {
  if (device_.is_cpu()) {
    seconds_ = watch_.seconds();
  } else {
    end_.emplace(recorded_event(device_, with_time));
  }
}

double ComputeTimer::seconds() {
  if (begin_ && end_ && end_->query()) {
    constexpr double s_of_ms = 1e-3;
    seconds_ = s_of_ms * begin_->elapsedTime(*end_);
    begin_.reset();
    end_.reset();
  }
  return seconds_;
}

}  // namespace finetune::shard
