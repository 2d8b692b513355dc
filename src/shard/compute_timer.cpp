// SPDX-License-Identifier: Apache-2.0
#include "shard/compute_timer.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace finetune::shard {

c10::Event ComputeTimer::now() const {
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return event;
}

void ComputeTimer::begin() {
  if (device_.is_cpu()) {
    watch_ = {};
    return;
  }
  seconds();
  end_.reset();
  begin_.emplace(now());
}

void ComputeTimer::end() {
  if (device_.is_cpu()) {
    seconds_ = watch_.seconds();
  } else {
    end_.emplace(now());
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
