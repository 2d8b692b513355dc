#pragma once
// SPDX-License-Identifier: Apache-2.0
// A communicator of NCCL that never blocks the host.

#include <fmt/format.h>
#include <nccl.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "comm/communicator.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace finetune::comm {

/// Owns the NCCL communicator. It never blocks the host: what a call does not finish at once is
/// polled for. Calls may come from several threads; NCCL gets one at a time.
class NcclHandle {
 public:
  explicit NcclHandle(const Communicator& comm)
      : where_(fmt::format("\"{}\", rank {} of {}", comm.name(), comm.rank(), comm.size())) {}
  ~NcclHandle() {
    // A destructor has nobody to tell, and the job is ending in either case.
    if (std::uncaught_exceptions() > exceptions_before_ || !finalize()) {
      abort();
    } else if (comm_ != nullptr) {
      ncclCommDestroy(comm_);
    }
  }
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  /// Begins to connect the ranks; is_under_way says when it is done.
  void connect(const Communicator& comm, const ncclUniqueId& id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    begin("ncclCommInitRankConfig", [&](ncclComm_t) {
      return ncclCommInitRankConfig(&comm_, comm.size(), id, comm.rank(), &config);
    });
  }

  /// Tells NCCL to do what `f` makes of the communicator, null before it is connected. Throws if
  /// that fails at once.
  template <typename F>
  void begin(std::string_view call, const F& f) {
    ncclResult_t code = ncclSuccess;
    {
      const std::lock_guard lock(mutex_);
      if (!is_aborted_) code = f(comm_);
    }
    began_.restart();
    if (code != ncclSuccess && code != ncclInProgress) fail(call, code);
  }

  /// Whether what was begun is under way. Throws if it failed, or not within the time there is.
  bool is_under_way(std::string_view call) {
    const ncclResult_t code = state(call);
    if (code != ncclSuccess && code != ncclInProgress) fail(call, code);
    if (code == ncclInProgress) require_in_time(call);
    return code == ncclSuccess;
  }

  void require_in_time(std::string_view call) const {
    if (began_.seconds() > connect_timeout_s)
      fail(call, fmt::format("it has not begun on all ranks within {} s", connect_timeout_s));
  }

  /// Puts on a stream what `enqueue` makes of the communicator; returns once it is under way.
  template <typename Enqueue>
  void call(std::string_view name, const Enqueue& enqueue) {
    begin(name, enqueue);
    while (!is_under_way(name)) {
      // No yielding meanwhile: see comm/detail/waiting.hpp.
      if (began_.seconds() >= spin_s) std::this_thread::sleep_for(poll_interval);
    }
  }

  /// Memory works without being registered, only slower: one warning will do.
  void warn_unregistered(ncclResult_t code) {
    if (std::exchange(has_warned_, true)) return;
    log::warn(core::to_string({fmt::format("nccl.register_buffers, {}", where_),
                               "NCCL does not register memory", ncclGetErrorString(code),
                               "Set it to false; NCCL_DEBUG=WARN says more."}));
  }

  /// Calls f(communicator) while nothing is being started, and not after an abort.
  template <typename F>
  void when_idle(const F& f) {
    const std::lock_guard lock(mutex_);
    if (comm_ != nullptr) f(comm_);
  }

  /// Throws if NCCL met an error since the last call, for example because another rank died.
  void check() {
    const ncclResult_t code = state("ncclCommGetAsyncError");
    if (code != ncclSuccess && code != ncclInProgress) fail("a collective", code);
  }

  /// Ends the kernels that wait for others: whoever synchronises with the device gets out. Nothing
  /// can be started after it.
  void abort() noexcept {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
  }

  [[noreturn]] void fail(std::string_view call, ncclResult_t code) {
    std::string why = ncclGetErrorString(code);
    {
      const std::lock_guard lock(mutex_);
      const char* details = ncclGetLastError(comm_);
      if (details != nullptr && *details != '\0') why += fmt::format(": {}", details);
    }
    fail(call, why);
  }

 private:
  // How long NCCL may take to connect the ranks, to put a collective on its way, and to part them.
  // Thousands of ranks take a minute; a wrong network interface takes for ever.
  static constexpr double connect_timeout_s = 300;
  static constexpr std::chrono::microseconds poll_interval{100};
  // A collective is under way within this time, mostly.
  static constexpr double spin_s = 60e-6;

  [[noreturn]] void fail(std::string_view call, const std::string& why) const {
    core::fail(core::ErrorKind::environment,
               {fmt::format("{} on {}", call, where_), "NCCL reports an error", why,
                "Look at the other ranks' output; NCCL_DEBUG=WARN says more."});
  }

  ncclResult_t state(std::string_view call) {
    ncclResult_t code = ncclSuccess;
    ncclResult_t asked = ncclSuccess;
    bool is_aborted = false;
    {
      const std::lock_guard lock(mutex_);
      is_aborted = is_aborted_;
      if (comm_ != nullptr) asked = ncclCommGetAsyncError(comm_, &code);
    }
    if (is_aborted) fail(call, std::string("its communicator was aborted"));
    if (asked != ncclSuccess) fail(call, asked);
    return code;
  }

  /// True if what was started is done and the communicator may be destroyed.
  bool finalize() {
    if (comm_ == nullptr) return true;
    const core::Stopwatch watch;
    ncclResult_t code = ncclCommFinalize(comm_);
    while (code == ncclInProgress && watch.seconds() < connect_timeout_s) {
      std::this_thread::sleep_for(poll_interval);
      if (ncclCommGetAsyncError(comm_, &code) != ncclSuccess) return false;
    }
    return code == ncclSuccess;
  }

  std::mutex mutex_;  ///< of comm_ and is_aborted_
  ncclComm_t comm_ = nullptr;
  bool is_aborted_ = false;
  core::Stopwatch began_;
  bool has_warned_ = false;
  std::string where_;
  int exceptions_before_ = std::uncaught_exceptions();
};

}  // namespace finetune::comm
