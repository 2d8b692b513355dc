#pragma once
// SPDX-License-Identifier: Apache-2.0
// A group whose collectives never arrive, and what that leaves behind.

#include <utility>

#include "comm/group.hpp"
#include "core/error.hpp"

extern "C" {
__attribute__((weak)) void __lsan_disable();
__attribute__((weak)) void __lsan_enable();
}

namespace finetune::tests {

/// What is allocated meanwhile may be left behind on purpose.
class LeftOnPurpose {
 public:
  LeftOnPurpose() {
    if (__lsan_disable != nullptr) __lsan_disable();
  }
  ~LeftOnPurpose() {
    if (__lsan_enable != nullptr) __lsan_enable();
  }
  LeftOnPurpose(const LeftOnPurpose&) = delete;
  LeftOnPurpose& operator=(const LeftOnPurpose&) = delete;
};

/// Sends nothing. Not collective.
class FailingGroup final : public comm::Group {
 public:
  enum class Fails { in_start, in_wait, never };

  FailingGroup(comm::Communicator comm, Fails when) : comm_(std::move(comm)), when_(when) {}

  const comm::Communicator& communicator() const override { return comm_; }
  comm::Ticket all_gather(core::DType, const void*, void*, std::int64_t) override {
    return start();
  }
  comm::Ticket reduce_scatter(core::DType, const void*, void*, std::int64_t) override {
    return start();
  }
  comm::Ticket all_reduce(core::DType, void*, std::int64_t) override { return start(); }
  comm::Ticket all_to_all(const void*, std::span<const std::int64_t>, void*,
                          std::span<const std::int64_t>) override {
    return start();
  }
  comm::Ticket exchange(comm::Exchange) override { return start(); }
  void wait(comm::Ticket) override {
    if (when_ == Fails::in_wait) fail();
  }
  void synchronize() override {}
  comm::Traffic traffic() const override { return {}; }
  double take_exposed_s() override { return 0; }

 private:
  comm::Ticket start() const {
    if (when_ == Fails::in_start) fail();
    return 1;
  }
  [[noreturn]] static void fail() {
    core::fail(core::ErrorKind::environment, {"test", "the others are gone", "", ""});
  }

  comm::Communicator comm_;
  Fails when_;
};

}  // namespace finetune::tests
