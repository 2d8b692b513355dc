// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_group.hpp"

#include <fmt/format.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "comm/agree.hpp"
#include "comm/cuda.hpp"
#include "comm/group_factory.hpp"
#include "core/clock.hpp"

namespace finetune::comm {
namespace {

// How long NCCL may take to connect the ranks, at the start and in a first collective, and to part
// them. Thousands of ranks take a minute; a wrong network interface takes for ever.
constexpr double connect_timeout_s = 300;
constexpr std::chrono::microseconds poll_interval{100};

ncclDataType_t nccl_type(core::DType dtype) {
  switch (dtype) {
    case core::DType::f32:
      return ncclFloat32;
    case core::DType::bf16:
      return ncclBfloat16;
    case core::DType::f16:
      return ncclFloat16;
    case core::DType::i64:
      return ncclInt64;
    default:
      core::check(false, "a group sums f32, bf16, f16 and i64");
      return ncclInt8;
  }
}

std::size_t nccl_count(std::int64_t count) {
  core::check(count >= 0, "a collective moves no negative number of elements");
  return static_cast<std::size_t>(count);
}

std::string reason(ncclResult_t code, ncclComm_t comm) {
  std::string text = ncclGetErrorString(code);
  const char* details = ncclGetLastError(comm);
  if (details != nullptr && *details != '\0') text += fmt::format(": {}", details);
  return text;
}

}  // namespace

/// Owns the NCCL communicator. It never blocks the host: what a call does not finish at once is
/// polled for.
class NcclGroup::Handle {
 public:
  explicit Handle(const Communicator& comm)
      : where_(fmt::format("\"{}\", rank {} of {}", comm.name(), comm.rank(), comm.size())) {}
  ~Handle() {
    if (comm_ == nullptr) return;
    // A destructor has nobody to tell, and the job is ending in either case.
    if (std::uncaught_exceptions() > exceptions_before_ || !finalize()) {
      ncclCommAbort(comm_);
    } else {
      ncclCommDestroy(comm_);
    }
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  void connect(const Communicator& comm, const ncclUniqueId& id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    finish(ncclCommInitRankConfig(&comm_, comm.size(), id, comm.rank(), &config),
           "ncclCommInitRankConfig");
  }

  ncclComm_t get() const {
    core::check(comm_ != nullptr, "nothing is started after an error of NCCL");
    return comm_;
  }

  /// Returns once what `call` began is under way. Throws if it failed.
  void finish(ncclResult_t code, std::string_view call) {
    const core::Stopwatch watch;
    while (code == ncclInProgress) {
      if (watch.seconds() > connect_timeout_s) {
        fail(call, fmt::format("it has not connected the ranks within {} s", connect_timeout_s));
      }
      std::this_thread::sleep_for(poll_interval);
      code = state(call);
    }
    if (code != ncclSuccess) fail(call, reason(code, comm_));
  }

  /// Throws if NCCL met an error since the last call, for example because another rank died.
  void check() {
    if (comm_ == nullptr) return;
    const ncclResult_t code = state("ncclCommGetAsyncError");
    if (code != ncclSuccess && code != ncclInProgress) fail("a collective", reason(code, comm_));
  }

  [[noreturn]] void fail(std::string_view call, const std::string& why) {
    // Ends the kernels that wait for others: whoever synchronises with the device gets out.
    if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
    core::fail(core::ErrorKind::environment,
               {fmt::format("{} on {}", call, where_), "NCCL reports an error", why,
                "Look at the other ranks' output; NCCL_DEBUG=WARN says more."});
  }

 private:
  ncclResult_t state(std::string_view call) {
    ncclResult_t code = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &code);
    if (asked != ncclSuccess) fail(call, reason(asked, comm_));
    return code;
  }

  /// True if what was started is done and the communicator may be destroyed.
  bool finalize() {
    const core::Stopwatch watch;
    ncclResult_t code = ncclCommFinalize(comm_);
    while (code == ncclInProgress && watch.seconds() < connect_timeout_s) {
      std::this_thread::sleep_for(poll_interval);
      if (ncclCommGetAsyncError(comm_, &code) != ncclSuccess) return false;
    }
    return code == ncclSuccess;
  }

  ncclComm_t comm_ = nullptr;
  std::string where_;
  int exceptions_before_ = std::uncaught_exceptions();
};

NcclGroup::NcclGroup(const Communicator& comm, std::shared_ptr<DeviceStream> stream)
    : comm_(comm), stream_(std::move(stream)), handle_(std::make_unique<Handle>(comm)) {
  ncclUniqueId id{};
  agree_all(comm, [&] {
    if (!comm.is_root()) return;
    const ncclResult_t code = ncclGetUniqueId(&id);
    if (code != ncclSuccess) handle_->fail("ncclGetUniqueId", reason(code, nullptr));
  });
  comm.broadcast(std::as_writable_bytes(std::span(&id, 1)));
  agree_all(comm, [&] { handle_->connect(comm, id); });
  stream_->add_check(this, [handle = handle_.get()] { handle->check(); });
}

NcclGroup::~NcclGroup() {
  stream_->remove_check(this);
}

template <typename Enqueue>
Ticket NcclGroup::start(std::string_view call, std::int64_t sent_bytes, const Enqueue& enqueue) {
  stream_->follow_compute();
  handle_->finish(enqueue(handle_->get(), static_cast<cudaStream_t>(stream_->stream())), call);
  ++traffic_.collectives;
  traffic_.sent_bytes += sent_bytes;
  return stream_->mark();
}

Ticket NcclGroup::all_gather(core::DType dtype, const void* shard, void* full, std::int64_t count) {
  // Nothing is added up, so bytes will do for every dtype.
  const std::int64_t bytes = count * core::size_bytes(dtype);
  return start("ncclAllGather", bytes * (size() - 1), [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllGather(shard, full, nccl_count(bytes), ncclUint8, comm, stream);
  });
}

Ticket NcclGroup::reduce_scatter(core::DType dtype, const void* full, void* shard,
                                 std::int64_t count) {
  const ncclDataType_t type = nccl_type(dtype);
  const std::int64_t sent = count * core::size_bytes(dtype) * (size() - 1);
  return start("ncclReduceScatter", sent, [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclReduceScatter(full, shard, nccl_count(count), type, ncclSum, comm, stream);
  });
}

Ticket NcclGroup::all_reduce(core::DType dtype, void* values, std::int64_t count) {
  const ncclDataType_t type = nccl_type(dtype);
  const std::int64_t sent = 2 * count * core::size_bytes(dtype) * (size() - 1) / size();
  return start("ncclAllReduce", sent, [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(values, values, nccl_count(count), type, ncclSum, comm, stream);
  });
}

Ticket NcclGroup::exchange(Exchange) {
  core::check(false, "an exchange packs and adds in host memory, NCCL moves device memory");
  return nothing_started;
}

void NcclGroup::wait(Ticket ticket) {
  if (ticket != nothing_started) stream_->make_compute_wait(ticket, stalls_);
}

void NcclGroup::synchronize() {
  stream_->synchronize();
}

double NcclGroup::take_exposed_s() {
  return stream_->take_s(stalls_);
}

std::unique_ptr<Group> make_nccl_group(const Communicator& comm,
                                       std::shared_ptr<DeviceStream> stream) {
  return std::make_unique<NcclGroup>(comm, std::move(stream));
}

}  // namespace finetune::comm
