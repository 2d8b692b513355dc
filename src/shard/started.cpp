// SPDX-License-Identifier: Apache-2.0
#include "shard/started.hpp"

#include <utility>

namespace finetune::shard {

Started::Started(comm::Group& group, std::vector<at::Tensor> memory)
    : group_(&group), memory_(std::move(memory)) {}

// An error on the way destroys what the other constructor made: part of it may have been started.
Started::Started(comm::Group& group, std::vector<at::Tensor> memory,
                 const std::function<comm::Ticket()>& start)
    : Started(group, std::move(memory)) {
  ticket_ = start();
}

Started::~Started() {
  leave_behind();
}

Started::Started(Started&& other) noexcept
    : group_(std::exchange(other.group_, nullptr)),
      ticket_(other.ticket_),
      memory_(std::move(other.memory_)) {}

Started& Started::operator=(Started&& other) noexcept {
  if (this == &other) return *this;
  leave_behind();
  group_ = std::exchange(other.group_, nullptr);
  ticket_ = other.ticket_;
  memory_ = std::move(other.memory_);
  return *this;
}

void Started::wait() {
  if (is_done()) return;
  group_->wait(ticket_);
  group_ = nullptr;
  memory_.clear();
}

void Started::leave_behind() noexcept {
  if (is_done()) return;
  group_ = nullptr;
  // Released one by one: nothing here allocates, so nothing can fail.
  for (at::Tensor& each : memory_)
    static_cast<void>(each.unsafeReleaseTensorImpl());
  memory_.clear();
}

}  // namespace finetune::shard
